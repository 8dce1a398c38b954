/** Work that needs a process of its own: its memory is measured, or it is killed. The program starts itself again. */
import { type ChildProcess, fork } from "node:child_process";
import type { Hot } from "./measure.ts";
import { profiled } from "./profile.ts";

const FLAG = "--child";
/** No piece of work takes longer, on a slow machine neither; what does hangs. */
const LONGEST_MS = 180_000;

/** What a child does: answers with plain data. `tell` says something meanwhile. */
export type ChildWork = (request: never, tell: (message: unknown) => void) => Promise<unknown>;

export interface Child {
  /** The first thing that it told. @throws when it ended without */
  readonly told: Promise<unknown>;
  /** What it answered in the end. @throws when it failed */
  readonly answer: Promise<unknown>;
  kill(): Promise<void>;
}

interface Message {
  readonly type: "told" | "answer" | "failed";
  readonly value: unknown;
}

/** Starts this program again to do one piece of work. */
export function startChild(work: string, request: unknown): Child {
  const program = process.argv[1] ?? "";
  const child = fork(program, [FLAG, work, JSON.stringify(request)], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const overdue = setTimeout(() => child.kill("SIGKILL"), LONGEST_MS);
  const gone = new Promise<void>((resolve) =>
    child.once("exit", () => {
      clearTimeout(overdue);
      resolve();
    }),
  );
  const answer = message(child, work, "answer");
  const told = message(child, work, "told");
  // Whoever kills a child does not wait for its answer.
  answer.catch(() => undefined);
  told.catch(() => undefined);
  return {
    told,
    answer,
    kill: () => {
      child.kill("SIGKILL");
      return gone;
    },
  };
}

function message(child: ChildProcess, work: string, wanted: Message["type"]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    child.on("message", ({ type, value }: Message) => {
      if (type === wanted) resolve(value);
      else if (type === "failed") reject(new Error(String(value)));
    });
    child.once("exit", (code, signal) =>
      reject(new Error(`Cannot measure: the child that does "${work}" ended with ${code ?? signal}`)),
    );
  });
}

/** Does a piece of work in a child and waits for its answer. */
export async function inChild<T>(work: string, request: unknown): Promise<T> {
  // Both sides are this program: what one sends is what the other was written to read.
  return (await startChild(work, request).answer) as T;
}

/** The same under the profiler. */
export async function profileInChild(work: string, request: object): Promise<readonly Hot[]> {
  return inChild<readonly Hot[]>(work, { ...request, profile: true });
}

/** When this process is a child: does what it was started for, and answers true. */
export async function serveAsChild(works: { readonly [name: string]: ChildWork }): Promise<boolean> {
  const [flag, name = "", request = "null"] = process.argv.slice(2);
  if (flag !== FLAG) return false;
  const send = (type: Message["type"], value: unknown): void => void process.send?.({ type, value } satisfies Message);
  try {
    const work = works[name];
    if (work === undefined) throw new Error(`Cannot work: there is no "${name}"`);
    const parsed = JSON.parse(request) as { profile?: boolean };
    const act = (): Promise<unknown> => work(parsed as never, (value) => send("told", value));
    send("answer", parsed.profile === true ? await profiled(act) : await act());
  } catch (error) {
    send("failed", error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
  process.disconnect?.();
  return true;
}
