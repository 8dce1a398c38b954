/** What the other end can show: terminal or pipe, colours, symbols, width, and whether a person can be asked. */

import type { Readable, Writable } from "node:stream";

type Out = Writable & { readonly isTTY?: boolean; readonly columns?: number };

/** As `process` has them. */
export interface Streams {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Out;
  readonly stderr: Out;
}

export interface Wishes {
  readonly json: boolean;
  readonly color: boolean;
  readonly prompts: boolean;
}

export interface Terminal {
  /** Columns of the terminal; Infinity where there is none, so that nothing is cut in a pipe or file. */
  readonly width: number;
  /** Lines may be rewritten in place. */
  readonly live: boolean;
  readonly color: boolean;
  readonly unicode: boolean;
  /** Progress goes to a person: standard error is a terminal. */
  readonly watched: boolean;
  /** A person can be asked and seen to answer. */
  readonly canPrompt: boolean;
}

type Env = NodeJS.ProcessEnv;

/**
 * no terminal, `CI`, `NO_COLOR` or `LANG=C` give plain lines; interfaces §2: no terminal, `CI` and
 * `--no-input` (and `--json`, whose reader is a program) mean that nobody is asked.
 */
export function detectTerminal(streams: Streams, env: Env, wishes: Wishes): Terminal {
  const ci = isSet(env.CI);
  const unicode = speaksUnicode(env);
  const watched = streams.stderr.isTTY === true;
  const plain = !watched || ci || isSet(env.NO_COLOR) || !wishes.color || !unicode || env.TERM === "dumb";
  return {
    width: streams.stdout.isTTY === true ? streams.stdout.columns || 80 : Number.POSITIVE_INFINITY,
    live: !plain,
    color: !plain,
    unicode,
    watched,
    canPrompt: watched && streams.stdin.isTTY === true && !ci && wishes.prompts && !wishes.json,
  };
}

/** `NO_COLOR` and `CI` count when they are there and neither empty nor a plain no. */
function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== "" && value !== "0" && value.toLowerCase() !== "false";
}

/** POSIX: the first of LC_ALL, LC_CTYPE and LANG that is set decides; none set means UTF-8 as everywhere today. */
function speaksUnicode(env: Env): boolean {
  const locale = [env.LC_ALL, env.LC_CTYPE, env.LANG].find((value) => value !== undefined && value !== "");
  return locale === undefined || /utf-?8/i.test(locale);
}

export interface Style {
  good(text: string): string;
  bad(text: string): string;
  warn(text: string): string;
  dim(text: string): string;
  bold(text: string): string;
  readonly done: string;
  readonly failed: string;
  readonly waiting: string;
  readonly skipped: string;
  readonly going: string;
  readonly dot: string;
  readonly more: string;
}

/** Colours and symbols that fit the terminal; plain words of one or two letters where it knows no others. */
export function styleOf(terminal: Pick<Terminal, "color" | "unicode">): Style {
  const paint = (open: number, close: number) => (text: string) =>
    terminal.color ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  const symbol = (nice: string, plain: string) => (terminal.unicode ? nice : plain);
  return {
    good: paint(32, 39),
    bad: paint(31, 39),
    warn: paint(33, 39),
    dim: paint(2, 22),
    bold: paint(1, 22),
    done: symbol("✓", "ok"),
    failed: symbol("✗", "x"),
    waiting: symbol("◷", "||"),
    skipped: symbol("–", "-"),
    going: symbol("▸", ">"),
    dot: symbol("·", "-"),
    more: symbol("…", "..."),
  };
}
