// Owns turning one TypeScript file into a program that `node` can start: for tests and benchmarks that spawn processes.
import path from "node:path";
import { bundle } from "./bundle.mjs";

/**
 * Bundles one entry (built again only when a file it was made from has changed; safe in many processes at once).
 * @param {string} file path of the TypeScript file from the repository's root, such as "test/crash/child.ts"
 * @returns {Promise<string>} absolute path of the .mjs to start with `process.execPath`
 */
export async function buildEntry(file) {
  const source = file.replaceAll("\\", "/");
  const name = `entry-${source.replace(/\.[^./]+$/, "").replaceAll(/[^A-Za-z0-9]+/g, "-")}`;
  return path.join(await bundle(name, { main: source }), "main.mjs");
}
