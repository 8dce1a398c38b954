/**
 * What a data file reads as: its value and the place of every part of it, so that a fault found anywhere later
 * is shown with line and column. Also the bounds that hold before anything is parsed (DESIGN §11, C25, C38).
 */
import type { Json } from "../domain/json.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";

/** Largest data file, in bytes of UTF-8. */
export const MAX_FILE_BYTES = 1_048_576;
/** Most values (keys, scalars, list items) of one file: what can be refused within 200 ms (C38). */
export const MAX_VALUES = 25_000;
/** Longest message of a diagnostic; what follows is cut. Parsers quote what they did not understand, whole. */
const MAX_MESSAGE = 200;
/** Most diagnostics of one file: after these the first ones are what to correct. */
export const MAX_DIAGNOSTICS = 20;

/** 1-based; `column` counts UTF-16 units, as editors do. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

export type DocumentPath = readonly (string | number)[];

/** Where a value starts and, for collections, where its parts are. */
export interface Located {
  readonly start: number;
  readonly keys?: ReadonlyMap<string, number>;
  readonly parts?: ReadonlyMap<string | number, Located>;
}

export interface DataDocument {
  /** In normal form. */
  readonly value: Json;
  /**
   * Place of the value at `path`, or of its key with `atKey`. For a path that does not exist: the place of the
   * deepest part that does.
   */
  locate(path: DocumentPath, atKey?: boolean): Place;
  readonly diagnostics?: undefined;
}

/** A file that cannot be read: never partly used. */
export interface RefusedDocument {
  readonly diagnostics: readonly Diagnostic[];
  readonly value?: undefined;
}

export type ReadResult = DataDocument | RefusedDocument;

/** Offsets to places. Lines are counted as far as was asked, so that a fault near the beginning costs little. */
export function lineIndex(text: string): (offset: number) => Place {
  const starts = [0];
  let next: number | undefined;
  return (offset) => {
    next ??= text.indexOf("\n");
    for (; next !== -1 && next < offset; next = text.indexOf("\n", next + 1)) starts.push(next + 1);
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((starts[middle] as number) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (starts[low] as number) + 1 };
  };
}

/** Follows a path through the tree of places; see `DataDocument.locate`. */
export function findOffset(root: Located, path: DocumentPath, atKey: boolean): number {
  let at = root;
  for (let i = 0; i < path.length; i++) {
    const part = path[i] as string | number;
    const last = i === path.length - 1;
    if (last && atKey) {
      const key = at.keys?.get(String(part));
      if (key !== undefined) return key;
    }
    const next = at.parts?.get(part);
    if (next === undefined) return at.start;
    at = next;
  }
  return at.start;
}

export function documentOf(value: Json, root: Located, placeAt: (offset: number) => Place): DataDocument {
  return { value, locate: (path, atKey = false) => placeAt(findOffset(root, path, atKey)) };
}

/** Builds the diagnostics of one file; `add` counts, so that a file full of faults stays readable. */
export class Faults {
  readonly list: Diagnostic[] = [];
  readonly #file: string;
  readonly #placeAt: (offset: number) => Place;

  constructor(file: string, placeAt: (offset: number) => Place) {
    this.#file = file;
    this.#placeAt = placeAt;
  }

  get full(): boolean {
    return this.list.length >= MAX_DIAGNOSTICS;
  }

  add(offset: number, code: string, message: string, hint?: string): void {
    if (this.full) return;
    const shown = message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}…` : message;
    const diagnostic = { file: this.#file, ...this.#placeAt(offset), code, message: shown, severity: "error" as const };
    this.list.push(hint === undefined ? diagnostic : { ...diagnostic, hint });
  }
}

/** The one refusal of a file that is too large, before it is looked at. */
export function refuseSize(text: string, file: string): RefusedDocument | undefined {
  // A UTF-16 unit is at most three bytes of UTF-8, so most texts need not be measured.
  if (text.length * 3 <= MAX_FILE_BYTES || Buffer.byteLength(text) <= MAX_FILE_BYTES) return undefined;
  return refused(file, "too_large", `the file is larger than ${MAX_FILE_BYTES} bytes; split it`);
}

/** A refusal that concerns the file as a whole. */
export function refused(file: string, code: string, message: string, hint?: string): RefusedDocument {
  const diagnostic = { file, line: 1, column: 1, code, message, severity: "error" as const };
  return { diagnostics: [hint === undefined ? diagnostic : { ...diagnostic, hint }] };
}
