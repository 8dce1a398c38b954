// Owns the rules about the text of files: what must stand first, what must never stand anywhere.

/** A file with more lines must be asked whether it is still one idea (style §2); a test is a flat list and may be longer. */
export function longestAllowed(file: string): number {
  return /\.(?:test|conformance)\.ts$/.test(file) ? 800 : 500;
}

/** An opening comment of at least two words, after an optional `#!` line. */
export function opensWithComment(text: string): boolean {
  const body = text.replace(/^#![^\n]*\n/, "");
  const comment = /^(?:\/\*\*?([\s\S]*?)\*\/|((?:\/\/[^\n]*(?:\n|$))+))/.exec(body);
  const words = (comment?.[1] ?? comment?.[2] ?? "").replace(/[*/\s]+/g, " ").trim();
  return words.split(" ").length >= 2 && !/^(?:eslint|biome|@ts-)/.test(words);
}

/** Things put off or switched off. A pattern such as `TODO|FIXME` is data, a comment that opens with one is not. */
export function unfinished(text: string): string | undefined {
  const marker = /(?:\/\/|\/\*+|^\s*\*|#|<!--)\s*(?:TODO|FIXME|XXX|HACK)\b(?![|,/'"])/m.exec(text);
  return (marker ?? /@ts-(?:ignore|nocheck|expect-error)|\bas any\b|eslint-disable/.exec(text))?.[0].trim();
}

/** What would make domain depend on when and where it runs. */
export function impurity(text: string): string | undefined {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/[^\n]*/g, "");
  const names = /\b(?:Date\.now|new Date\(\)|Math\.random|performance\.now|setTimeout|setInterval|process\.)/.exec(
    code,
  );
  if (names !== null) return names[0];
  const crypto = /import[^;]*from "node:crypto"/.exec(code)?.[0];
  return crypto !== undefined && crypto !== 'import { hash } from "node:crypto"' ? crypto : undefined;
}

const HOMES = ["work/main", "work/shared", "root", "Users/[^/\\s]+"].map((folder) => `(?<![\\w.@-])/${folder}/`);
const DOWNLOADS = "https?://[\\w.-]*(?:registry|artifactory|mirror)[\\w.-]*";
const FOREIGN = new RegExp([...HOMES, DOWNLOADS, '"resolved"(?=:)'].join("|"));

/** A path or host of the machine that the file was written on. */
export function machineTrace(text: string): string | undefined {
  return FOREIGN.exec(text)?.[0];
}

/** Commands that a document tells its reader to type: `holdfast NAME` and `npm run NAME`, in code only. */
export function commandsIn(markdown: string): { holdfast: string[]; npm: string[] } {
  const code = [...markdown.matchAll(/```[^\n]*\n([\s\S]*?)```|`([^`\n]+)`/g)].map(
    (found) => found[1] ?? found[2] ?? "",
  );
  const names = (pattern: RegExp): string[] => {
    const all = code.flatMap((part) => [...part.matchAll(pattern)].map((found) => found[1] ?? ""));
    return [...new Set(all)];
  };
  return {
    holdfast: names(/(?:^|[\s$/])holdfast ([a-z][a-z-]*)\b(?![:=/])/gm),
    npm: names(/\bnpm run ([a-z][a-z:-]*)/g),
  };
}
