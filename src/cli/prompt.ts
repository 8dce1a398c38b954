/** Asking a person on a terminal. Every question has a safe answer: Enter alone, Ctrl-C and end of input are No. */
import { createInterface } from "node:readline/promises";
import type { Context } from "./context.ts";
import { clip } from "./text.ts";

/**
 * The words typed, trimmed; "" for Enter, Ctrl-C and end of input.
 * @param signal ends the asking, as if nothing was answered
 */
export async function ask(
  context: Context,
  question: string,
  placeholder: string,
  signal?: AbortSignal,
): Promise<string> {
  return (await askLine(context, question, placeholder, signal))?.trim() ?? "";
}

/** The line as it was typed, "" for Enter; undefined for Ctrl-C, end of input and an ended `signal`. */
export async function askLine(
  context: Context,
  question: string,
  placeholder: string,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const { stdin, stderr } = context.process.streams;
  if (!context.out.terminal.live) return await askPlainly(context, `${question} (${placeholder}) `, signal);
  const { isCancel, text } = await import("@clack/prompts");
  const answer = await text({
    message: question,
    placeholder,
    input: stdin,
    output: stderr,
    ...(signal === undefined ? {} : { signal }),
  });
  return isCancel(answer) ? undefined : (answer ?? "");
}

/** For terminals that show plain lines only. */
async function askPlainly(context: Context, question: string, signal?: AbortSignal): Promise<string | undefined> {
  const { stdin, stderr } = context.process.streams;
  // The end of input has been answered already; a new reader would wait for it for ever.
  if (stdin.readableEnded || stdin.destroyed) return undefined;
  const reader = createInterface({ input: stdin, output: stderr });
  const over = new AbortController();
  reader.once("close", () => over.abort());
  reader.once("SIGINT", () => reader.close());
  const signals = signal === undefined ? [over.signal] : [over.signal, signal];
  try {
    return await reader.question(question, { signal: AbortSignal.any(signals) });
  } catch {
    return undefined;
  } finally {
    reader.close();
  }
}

/** A person can take in this many characters at a time; longer matters are opened page by page. */
const PAGE_CHARACTERS = 10_000;

/**
 * Shows all of `text`; past 10,000 characters page by page.
 * @returns false when the person did not open all of it: nothing may be decided then
 */
export async function showWhole(context: Context, text: string, signal?: AbortSignal): Promise<boolean> {
  const pages: string[] = [];
  for (let rest = text; rest !== ""; ) {
    const page = clip(rest, PAGE_CHARACTERS, "");
    pages.push(page);
    rest = rest.slice(page.length);
  }
  for (const [i, page] of pages.entries()) {
    context.out.tell(page);
    if (i === pages.length - 1) break;
    const answer = await ask(
      context,
      `Page ${i + 1} of ${pages.length}.`,
      "type more to open the next page, Enter to leave it",
      signal,
    );
    if (answer.toLowerCase() !== "more") return false;
  }
  return true;
}
