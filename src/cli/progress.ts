/** What a person sees while a run goes on: a line for each finished step, and one live line of what is running. */
import type { OperatorEvent } from "../access/api.ts";
import type { Output } from "./output.ts";
import { numberOf, objectOf, textOf } from "./render/event.ts";
import { clip, elapsed, oneLine } from "./text.ts";

export interface Progress {
  event(event: OperatorEvent): void;
  /** Sequence of the last event shown. */
  readonly sequence: number;
  /** Stops the live line, prints what is still gathered. */
  end(): void;
}

/** Instances of one step that run as a crowd (map items, parallel attempts) share a line. */
interface Crowd {
  readonly name: string;
  done: number;
  failed: number;
  readonly firstMs: number;
  lastMs: number;
}

/**
 * Shown on a terminal, and as plain lines under `--verbose` elsewhere; quiet otherwise (DESIGN §12).
 * @param now for the live line's elapsed time; times of finished steps are the journal's
 */
export function createProgress(out: Output, now: () => number): Progress {
  if (out.quiet || (!out.terminal.watched && !out.verbose)) return silentProgress();
  return new ShownProgress(out, now);
}

function silentProgress(): Progress {
  let sequence = 0;
  return {
    event: (event) => {
      sequence = event.sequence;
    },
    get sequence() {
      return sequence;
    },
    end: () => {},
  };
}

const REFRESH_MS = 120;

class ShownProgress implements Progress {
  sequence = 0;
  readonly #out: Output;
  readonly #now: () => number;
  readonly #running = new Map<string, { readonly startedMs: number; readonly tool: string | undefined }>();
  readonly #crowds = new Map<string, Crowd>();
  readonly #timer: NodeJS.Timeout | undefined;
  #drawnMs = 0;

  constructor(out: Output, now: () => number) {
    this.#out = out;
    this.#now = now;
    if (out.terminal.live) this.#timer = setInterval(() => this.#draw(), REFRESH_MS).unref();
  }

  event(event: OperatorEvent): void {
    this.sequence = event.sequence;
    const at = Date.parse(event.at);
    const step = textOf(event, "step_id");
    if (step === undefined) return this.#runEvent(event, at);
    switch (event.type) {
      case "step_started":
        return this.#started(event, step, at);
      case "step_completed":
        return this.#finished(step, at, this.#out.style.good(this.#out.style.done));
      case "step_failed":
        return this.#failed(event, step, at);
      case "step_cancelled":
        return this.#finished(step, at, this.#out.style.dim(this.#out.style.skipped), "stopped");
      case "step_skipped":
        return this.#finished(step, at, this.#out.style.dim(this.#out.style.skipped), "skipped");
      case "step_suspended":
      case "wait_opened":
        this.#running.delete(step);
        return;
      default:
        return;
    }
  }

  end(): void {
    if (this.#timer !== undefined) clearInterval(this.#timer);
    this.#flushCrowds(true);
    this.#out.status("");
  }

  #runEvent(event: OperatorEvent, at: number): void {
    const due = numberOf(event, "due_at_ms");
    if (event.type === "phase" && textOf(event, "name") === "retry_reserved" && due !== undefined)
      this.#line(`${this.#out.style.waiting} next attempt in ${elapsed(due - at)}`);
  }

  #started(event: OperatorEvent, step: string, at: number): void {
    const tool = textOf(event, "tool");
    this.#running.set(step, { startedMs: at, tool });
    if (!isCrowd(step)) this.#flushCrowds();
    const attempt = numberOf(event, "attempt") ?? 1;
    const again = numberOf(event, "redispatch") ?? 0;
    if (again > 0) this.#line(`${this.#out.style.going} ${oneLine(step)} is sent again after an interruption`);
    // Without a live line, the start of a long step is the only sign that something goes on.
    else if (!this.#out.terminal.live && !isCrowd(step))
      this.#line(`${this.#out.style.going} ${oneLine(step)}${attempt > 1 ? ` attempt ${attempt}` : ""}`);
    this.#live();
  }

  #failed(event: OperatorEvent, step: string, at: number): void {
    const message = objectOf(event, "failure")?.message;
    const why = typeof message === "string" ? oneLine(message) : "failed";
    this.#finished(step, at, this.#out.style.bad(this.#out.style.failed), why);
  }

  #finished(step: string, at: number, mark: string, why?: string): void {
    const started = this.#running.get(step)?.startedMs;
    this.#running.delete(step);
    if (isCrowd(step) && !(why !== undefined && this.#out.verbose))
      return this.#inCrowd(step, at, started, why !== undefined);
    this.#flushCrowds();
    const time = started === undefined ? "" : `  ${this.#out.style.dim(elapsed(at - started))}`;
    this.#line(`${mark} ${oneLine(step)}${time}${why === undefined ? "" : `  ${why}`}`);
    this.#live();
  }

  #inCrowd(step: string, at: number, started: number | undefined, failed: boolean): void {
    const name = baseName(step);
    const crowd = this.#crowds.get(name) ?? { name, done: 0, failed: 0, firstMs: started ?? at, lastMs: at };
    crowd.done += failed ? 0 : 1;
    crowd.failed += failed ? 1 : 0;
    crowd.lastMs = at;
    this.#crowds.set(name, crowd);
    this.#live();
  }

  /** Crowds of which nobody runs any more have their line; at the end all of them. */
  #flushCrowds(all = false): void {
    for (const crowd of this.#crowds.values()) {
      if (!all && [...this.#running.keys()].some((step) => baseName(step) === crowd.name)) continue;
      const { style } = this.#out;
      const mark = crowd.failed > 0 ? style.bad(style.failed) : style.good(style.done);
      const failed = crowd.failed > 0 ? `, ${crowd.failed} not done` : "";
      this.#line(
        `${mark} ${oneLine(crowd.name)} ${this.#times(crowd.done)}${failed}  ${style.dim(elapsed(crowd.lastMs - crowd.firstMs))}`,
      );
      this.#crowds.delete(crowd.name);
    }
  }

  #times(n: number): string {
    return this.#out.terminal.unicode ? `×${n}` : `x${n}`;
  }

  #line(text: string): void {
    this.#out.note(text);
  }

  /** Events come faster than anyone reads: the line is drawn at most once in a refresh. */
  #live(): void {
    if (this.#out.terminal.live && this.#now() - this.#drawnMs >= REFRESH_MS) this.#draw();
  }

  #draw(): void {
    this.#drawnMs = this.#now();
    const columns = Number.isFinite(this.#out.terminal.width) ? this.#out.terminal.width : 80;
    this.#out.status(this.#running.size === 0 ? "" : clip(this.#liveText(), columns - 1));
  }

  #liveText(): string {
    const groups = new Map<string, { n: number; since: number }>();
    for (const [step, { startedMs }] of this.#running) {
      const group = groups.get(baseName(step)) ?? { n: 0, since: startedMs };
      group.n++;
      groups.set(baseName(step), group);
    }
    const parts = [...groups].slice(0, 4).map(([name, { n, since }]) => {
      const done = this.#crowds.get(name)?.done ?? 0;
      const crowd = n > 1 || done > 0 ? ` (${n} running${done > 0 ? `, ${done} done` : ""})` : "";
      return `${oneLine(name)}${crowd} ${elapsed(this.#now() - since)}`;
    });
    return `${this.#out.style.going} ${parts.join(` ${this.#out.style.dot} `)}`;
  }
}

/** `each@root[3]` is one of many (a map item); a step at scope `root` has its bare id (RP §2). */
function isCrowd(step: string): boolean {
  return /\[\d+\]/.test(step);
}

function baseName(step: string): string {
  const at = step.indexOf("@");
  return at > 0 ? step.slice(0, at) : step.replace(/\[\d+\]/g, "");
}
