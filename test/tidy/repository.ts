// Owns reading the repository for the house rules: which files there are, and what each imports.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Made by tools or people's own; never part of the source. */
const SKIPPED = new Set(["node_modules", ".git", "dist", ".cache", "coverage"]);

/** Paths from the root with `/`, sorted, of all files in a folder (default: everything). */
export function files(folder = "."): string[] {
  const found: string[] = [];
  const visit = (at: string): void => {
    for (const entry of readdirSync(path.join(ROOT, at), { withFileTypes: true })) {
      const name = at === "." ? entry.name : `${at}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!SKIPPED.has(entry.name) && name !== ".holdfast/state") visit(name);
      } else if (entry.isFile()) found.push(name);
    }
  };
  visit(folder);
  return found.sort();
}

export function read(file: string): string {
  return readFileSync(path.join(ROOT, file), "utf8");
}

export function isTest(file: string): boolean {
  return /\.test\.tsx?$/.test(file) || file.startsWith("test/");
}

export interface Import {
  readonly file: string;
  /** As written. */
  readonly specifier: string;
  /** Path from the root for a relative specifier. */
  readonly target?: string;
}

/** Static, dynamic, type-only and re-exporting imports alike. */
export function importsOf(file: string, text: string): Import[] {
  return ts
    .preProcessFile(text, true, true)
    .importedFiles.map(({ fileName: specifier }) =>
      specifier.startsWith(".")
        ? { file, specifier, target: path.posix.join(path.posix.dirname(file), specifier) }
        : { file, specifier },
    );
}
