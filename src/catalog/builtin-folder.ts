/**
 * Where the built-in workflows lie: beside this file in the sources, in `builtin/` beside the bundle in the
 * published package, in the sources of the checkout for the bundles of a checkout.
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** @param from URL of the running module (`import.meta.url` of the composition root); `undefined` when none is near */
export function builtinFolder(from: string): string | undefined {
  let folder = dirname(fileURLToPath(from));
  // A bundle lies at most a few folders below the package: dist/, or .cache/NAME/chunks/.
  for (let up = 0; up < 5; up++) {
    for (const name of ["catalog/builtin", "builtin", "src/catalog/builtin"]) {
      const candidate = join(folder, ...name.split("/"));
      if (existsSync(join(candidate, MARKER))) return candidate;
    }
    folder = dirname(folder);
  }
  return undefined;
}

/** A file that only the real folder has. */
const MARKER = "repo-overview.yaml";
