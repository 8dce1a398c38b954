// Owns starting, hearing and ending the processes of the crash tests.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { buildEntry } from "../../dev/build-entry.mjs";
import type { ChildRequest } from "./child-request.ts";

export type Said = Readonly<Record<string, unknown>>;

export interface Child {
  readonly process: ChildProcess;
  /** What it has said so far. */
  readonly said: Said[];
  /** The first document, said or to come, that fits. @throws Error when the process ends without it */
  hears(fits: (said: Said) => boolean): Promise<Said>;
  readonly exited: Promise<{ readonly status: number | null; readonly signal: string | null }>;
}

const folders: string[] = [];
/** Built once for each file of tests, so that all of its processes are the same program. */
const programs = new Map<string, Promise<string>>();
const running = new Set<ChildProcess>();

export function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "holdfast-crash-"));
  folders.push(made);
  return made;
}

export function child(request: ChildRequest): Promise<Child> {
  return childOf("test/crash/run-child.ts", request);
}

/** A process of another program of this folder. */
export async function childOf(entry: string, request: object): Promise<Child> {
  const program = programs.get(entry) ?? buildEntry(entry);
  programs.set(entry, program);
  const started = spawn(process.execPath, [await program, JSON.stringify(request)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  running.add(started);
  const said: Said[] = [];
  const waiting = new Set<() => void>();
  const lines = createInterface({ input: started.stdout });
  lines.on("line", (line) => {
    said.push(JSON.parse(line) as Said);
    for (const look of waiting) look();
  });
  let ended = false;
  const exited = new Promise<Awaited<Child["exited"]>>((resolve) => {
    started.on("close", (status, signal) => {
      ended = true;
      running.delete(started);
      for (const look of waiting) look();
      resolve({ status, signal });
    });
  });
  return {
    process: started,
    said,
    exited,
    hears: (fits) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const found = said.find(fits);
          if (found === undefined && !ended) return;
          waiting.delete(look);
          if (found === undefined)
            reject(new Error(`The process ended without saying it; it said ${JSON.stringify(said)}`));
          else resolve(found);
        };
        waiting.add(look);
        look();
      }),
  };
}

/** Runs one to its end and answers what it said last. */
export async function runChild(request: ChildRequest): Promise<{
  readonly last: Said;
  readonly said: readonly Said[];
  readonly status: number | null;
  readonly signal: string | null;
}> {
  const one = await child(request);
  const { status, signal } = await one.exited;
  return { last: one.said.at(-1) ?? {}, said: one.said, status, signal };
}

/** What happened outside, in order. */
export function effectsIn(
  folderPath: string,
): readonly { readonly tool: string; readonly step: string; readonly dispatch_id: string; readonly pid: number }[] {
  const file = join(folderPath, "effects");
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as ReturnType<typeof effectsIn>[number]);
}

/** `work` over all of `list`, two at a time: there are two cores. */
export async function twoAtATime<T, R>(list: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < list.length) {
      const i = next++;
      results[i] = await work(list[i] as T);
    }
  };
  await Promise.all([worker(), worker()]);
  return results;
}

export function cleanUp(): void {
  for (const each of running) each.kill("SIGKILL");
  for (const each of folders.splice(0)) rmSync(each, { recursive: true, force: true });
}
