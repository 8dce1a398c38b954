/**
 * `holdfast demo`: a real workflow on the files of this folder, its worker process killed in the middle and
 * started again. This process only watches; the work is done in another one of the same build.
 */
import { type ChildProcess, fork } from "node:child_process";
import { existsSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { OperatorEvent, Run } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import type { Context } from "../context.ts";
import { type DemoMessage, isDemoMessage } from "../demo/messages.ts";
import { reportLines } from "../demo/report.ts";
import { EXIT, exitOf, type Output } from "../output.ts";
import { createProgress, type Progress } from "../progress.ts";
import { count, elapsed, shellQuote } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const store = context.flags.text("worker");
  if (store !== undefined) {
    const { demoWorker } = await import("../demo/worker.ts");
    return await demoWorker(context, store);
  }
  return await new Demo(context).show();
}

class Demo {
  readonly #context: Context;
  readonly #out: Output;
  readonly #root: string;
  readonly #folder: string;
  readonly #fast: boolean;
  readonly #seen = { last: 0, killedAt: 0, before: 0, completed: 0, kept: 0, repeated: 0 };
  #progress: Progress | undefined;
  #worker: ChildProcess | undefined;
  #ended: Run | undefined;
  #error: HoldfastError | undefined;
  #stopped = false;

  constructor(context: Context) {
    this.#context = context;
    // The demonstration is there to be watched: without a terminal its progress comes as plain lines.
    this.#out = { ...context.out, verbose: true };
    this.#root = checkoutOf(context.process.cwd);
    this.#folder = mkdtempSync(path.join(realpathSync(tmpdir()), "holdfast-demo-"));
    this.#fast = context.flags.on("fast");
  }

  get #store(): string {
    return `sqlite:${path.join(this.#folder, "holdfast.db")}`;
  }

  async show(): Promise<number> {
    const started = this.#context.process.now();
    const unlisten = [
      this.#context.process.onSignal("SIGINT", () => this.#stop()),
      this.#context.process.onSignal("SIGTERM", () => this.#stop()),
    ];
    try {
      this.#introduce();
      await this.#live([]);
      if (this.#seen.killedAt > 0 && !this.#stopped) await this.#live(["--again"]);
      return this.#finish(this.#context.process.now() - started);
    } finally {
      for (const each of unlisten) each();
      this.#worker?.kill("SIGKILL");
      if (!this.#context.flags.on("keep")) rmSync(this.#folder, { recursive: true, force: true, maxRetries: 3 });
    }
  }

  #introduce(): void {
    const { style } = this.#out;
    this.#out.note(
      style.bold(`Holdfast at work on the files of ${this.#root}`),
      "It only reads. For this demonstration alone it trusts three read-only tools of its own (demo_pick,",
      "demo_measure, demo_summarise); no configuration is loaded and no trust is left behind.",
      "",
    );
  }

  /** One life of the worker process: until the run has ended, or until we kill it. */
  async #live(more: readonly string[]): Promise<void> {
    const { process: host } = this.#context;
    const words = ["demo", "--worker", this.#store, ...(this.#fast ? ["--fast"] : []), ...more];
    const worker = fork(host.entry, words, {
      cwd: this.#root,
      env: host.env,
      execArgv: [],
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#worker = worker;
    this.#progress = createProgress(this.#out, host.now);
    let complaint = "";
    worker.stderr?.on("data", (chunk: Buffer) => {
      complaint = `${complaint}${chunk.toString("utf8")}`.slice(-4_000);
    });
    worker.on("message", (message) => {
      if (isDemoMessage(message)) this.#message(message);
    });
    const status = await new Promise<number | string>((resolve) => {
      worker.once("error", (error) => resolve(error.message));
      // `close`, not `exit`: only then has everything that it said arrived.
      worker.once("close", (code, signal) => resolve(signal ?? code ?? EXIT.bug));
    });
    this.#progress.end();
    const expected = this.#ended !== undefined || this.#error !== undefined || this.#stopped || status === "SIGKILL";
    if (!expected) throw new Error(`the demonstration's worker process ended with ${status}: ${complaint}`);
  }

  #message(message: DemoMessage): void {
    switch (message.type) {
      case "started":
        this.#seen.before = message.last_sequence;
        if (message.last_sequence > 0) this.#continued();
        return;
      case "event":
        return this.#event(message.event);
      case "halfway":
        return this.#kill();
      case "ended":
        this.#ended = message.run;
        return;
      case "error":
        this.#error = new HoldfastError(message.error.code, message.error.message);
        return;
    }
  }

  #event(event: OperatorEvent): void {
    this.#seen.last = Math.max(this.#seen.last, event.sequence);
    if (event.type === "step_completed") this.#seen.completed++;
    if (event.type === "step_started" && typeof event.redispatch === "number" && event.redispatch > 0)
      this.#seen.repeated++;
    this.#progress?.event(event);
    if (event.type === "step_failed" && event.step_id === "report")
      this.#out.note(this.#out.style.dim("  (its first try fails on purpose, so that a retry can be seen)"));
  }

  #kill(): void {
    const worker = this.#worker;
    if (worker === undefined || this.#seen.killedAt > 0) return;
    this.#seen.killedAt = this.#seen.last;
    worker.kill("SIGKILL");
    this.#progress?.end();
    const { style } = this.#out;
    this.#out.note(
      "",
      `${style.bad(style.failed)} ${style.bold("Killed the worker process")} (SIGKILL, as a crash or a deploy would), half-way through.`,
    );
  }

  #continued(): void {
    this.#seen.kept = this.#seen.completed;
    const { style } = this.#out;
    this.#out.note(
      `${style.good(style.going)} A new process takes over: ${count(this.#seen.kept, "finished step")} kept, only what was in flight is done again.`,
      "",
    );
  }

  #stop(): void {
    this.#stopped = true;
    this.#worker?.kill("SIGKILL");
  }

  #finish(tookMs: number): number {
    if (this.#error !== undefined) throw this.#error;
    const ended = this.#ended;
    if (ended === undefined) {
      this.#out.tell("Stopped. Nothing of it is left.");
      return EXIT.interrupted;
    }
    const { kept, repeated, killedAt } = this.#seen;
    if (this.#out.json)
      this.#out.document({
        run_id: ended.run_id,
        ...(killedAt > 0 ? { killed_at_sequence: killedAt } : {}),
        kept,
        repeated,
        ...(ended.output === undefined ? {} : { output: ended.output }),
      });
    if (ended.status !== "succeeded" || ended.output === undefined) {
      this.#out.tell(`The demonstration's run is ${ended.status}: ${ended.failure?.message ?? "it has no output"}`);
      return exitOf(ended.status);
    }
    if (!this.#out.json) this.#out.print("", ...reportLines(ended.output, this.#out));
    this.#conclude(ended, tookMs);
    return EXIT.succeeded;
  }

  #conclude(ended: Run, tookMs: number): void {
    const { style } = this.#out;
    const { kept, repeated, killedAt } = this.#seen;
    const crash = killedAt > 0 ? ` One kill: ${kept} finished steps kept, ${repeated} done again.` : "";
    const name = this.#context.process.program;
    this.#out.note(
      "",
      style.good(`${style.done} ${count(ended.usage.steps, "step")} in ${elapsed(tookMs)}.${crash}`),
      "",
      "Now yours:",
    );
    this.#out.note(
      `  ${name} init         write a first workflow`,
      `  ${name} run hello    run it`,
      `  ${name} --help       everything else`,
    );
    if (!this.#context.flags.on("keep")) return;
    const store = `${name} --store ${shellQuote(this.#store)}`;
    this.#out.note("", "Its journal was kept:", `  ${store} show last --steps`, `  ${store} events last`);
  }
}

/** The checkout that this folder is in, so that `npm start` and a sub-folder show the same; else the folder. */
function checkoutOf(cwd: string): string {
  const real = realpathSync(cwd);
  for (let folder = real; ; folder = path.dirname(folder)) {
    if (existsSync(path.join(folder, ".git"))) return folder;
    if (path.dirname(folder) === folder) return real;
  }
}
