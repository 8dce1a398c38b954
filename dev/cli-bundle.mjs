// Owns which entries make up the `holdfast` command in a checkout: the same as the published build.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { bundle, root } from "./bundle.mjs";

/** Output name → source; one bundle, so that a configuration file's `holdfast` is the running library. */
export const ENTRIES = {
  cli: "src/cli/main.ts",
  index: "src/index.ts",
  client: "src/client/index.ts",
  testing: "src/testing/index.ts",
};

/** @returns {Promise<URL>} of the command's entry, fresh */
export async function cliEntry() {
  const present = Object.entries(ENTRIES).filter(
    ([out, file]) => out === "cli" || fs.existsSync(path.join(root, file)),
  );
  return pathToFileURL(path.join(await bundle("holdfast", Object.fromEntries(present)), "cli.mjs"));
}
