// Owns running TypeScript from a checkout without a build step: entries are bundled into .cache by esbuild when, and
// only when, one of the files they were made from has changed (docs/decisions/0002).
//
// .cache/NAME.json    { folder, inputs: { "src/…": "size mtime" } }: what the newest bundle was made from
// .cache/NAME-HASH/   that bundle; never written again, so a running process can still load its lazy chunks
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
/** Bundles that a long-lived process may still be reading are kept this long. */
const KEEP_MS = 24 * 60 * 60 * 1000;
const KEEP_NEWEST = 3;
/** A build reads files one after another: when one changes meanwhile, it is built again, at most this often. */
const MAX_BUILDS = 3;

/** Files that are read from disk at run time: copied beside the bundle, as the published build does. */
export const ASSETS = [{ from: "src/catalog/builtin", to: "builtin", match: /\.ya?ml$/ }];

/**
 * The bundle of the given entries, built when stale.
 * @param {string} name of the bundle, kebab-case
 * @param {Record<string, string>} entries output name → source path from the root
 * @returns {Promise<string>} absolute folder that holds OUTPUT-NAME.mjs for each entry
 */
export async function bundle(name, entries) {
  const cache = path.join(root, ".cache");
  const known = readPointer(cache, name);
  if (known !== undefined && sameEntries(known.entries, entries) && isFresh(known))
    return path.join(cache, known.folder);
  let writable = cache;
  try {
    fs.mkdirSync(cache, { recursive: true });
    fs.accessSync(cache, fs.constants.W_OK);
  } catch {
    writable = privateFolder();
  }
  return await build(writable, name, entries);
}

function readPointer(cache, name) {
  try {
    return JSON.parse(fs.readFileSync(path.join(cache, `${name}.json`), "utf8"));
  } catch {
    return undefined;
  }
}

function sameEntries(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

function isFresh(pointer) {
  for (const [file, stamp] of Object.entries(pointer.inputs)) if (stampOf(file) !== stamp) return false;
  return fs.existsSync(path.join(root, ".cache", pointer.folder));
}

/** A folder's stamp changes when a file is added or removed; a file's when it is written. */
function stampOf(file) {
  const stat = fs.statSync(path.join(root, file), { throwIfNoEntry: false });
  return stat === undefined ? "gone" : `${stat.isDirectory() ? 0 : stat.size} ${stat.mtimeMs}`;
}

/** For a checkout that cannot be written: a folder of this process alone, gone with it. */
function privateFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "holdfast-"));
  fs.symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"), "junction");
  process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function build(cache, name, entries) {
  for (let round = 1; ; round++) {
    const temporary = path.join(cache, `build-${process.pid}-${randomBytes(4).toString("hex")}`);
    try {
      const inputs = await buildInto(temporary, entries);
      const changed = Object.entries(inputs).some(([file, stamp]) => stampOf(file) !== stamp);
      if (changed && round < MAX_BUILDS) continue;
      const folder = `${name}-${createHash("sha256")
        .update(JSON.stringify([entries, inputs]))
        .digest("hex")
        .slice(0, 16)}`;
      publish(cache, name, temporary, folder, { folder, entries, inputs });
      sweep(cache, name, folder);
      return path.join(cache, folder);
    } finally {
      fs.rmSync(temporary, { recursive: true, force: true });
    }
  }
}

async function buildInto(folder, entries) {
  const { build: esbuild } = await loadEsbuild();
  const stamps = {};
  const started = Date.now();
  const result = await esbuild({
    absWorkingDir: root,
    entryPoints: Object.entries(entries).map(([out, file]) => ({ in: file, out })),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20.19",
    packages: "external",
    sourcemap: "linked",
    sourcesContent: false,
    metafile: true,
    logLevel: "silent",
  });
  const files = ["dev/bundle.mjs", ...Object.keys(result.metafile.inputs).map((file) => file.replaceAll("\\", "/"))];
  for (const asset of ASSETS) files.push(...copyAsset(asset, folder));
  for (const file of files) {
    const stamp = stampOf(file);
    // Written after the build began: which text was read is not known, so it counts as changed.
    stamps[file] = Number(stamp.split(" ")[1]) > started ? `meanwhile ${randomBytes(8).toString("hex")}` : stamp;
  }
  return stamps;
}

function copyAsset(asset, folder) {
  const source = path.join(root, asset.from);
  if (!fs.existsSync(source)) return [];
  const names = fs.readdirSync(source).filter((file) => asset.match.test(file));
  fs.mkdirSync(path.join(folder, asset.to), { recursive: true });
  for (const file of names) fs.copyFileSync(path.join(source, file), path.join(folder, asset.to, file));
  return [asset.from, ...names.map((file) => `${asset.from}/${file}`)];
}

async function loadEsbuild() {
  try {
    return await import("esbuild");
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new BundleError("Cannot start: the packages are not installed; run `npm start`, or `npm ci` first.", 5);
  }
}

/** Why there is no bundle, in one sentence; `status` is the exit status that fits. */
export class BundleError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "BundleError";
    this.status = status;
  }
}

/** Two processes may build at once: a folder is renamed into place whole, and the second finds it there. */
function publish(cache, name, temporary, folder, pointer) {
  try {
    fs.renameSync(temporary, path.join(cache, folder));
  } catch (error) {
    if (!["EEXIST", "ENOTEMPTY", "EPERM"].includes(error.code)) throw error;
    const now = new Date();
    fs.utimesSync(path.join(cache, folder), now, now);
  }
  const draft = path.join(cache, `${folder}.${process.pid}.json`);
  fs.writeFileSync(draft, JSON.stringify(pointer));
  fs.renameSync(draft, path.join(cache, `${name}.json`));
}

function sweep(cache, name, current) {
  const old = [];
  for (const entry of fs.readdirSync(cache)) {
    const leftover = entry.startsWith("build-");
    if (!leftover && !(entry.startsWith(`${name}-`) && /-[0-9a-f]{16}$/.test(entry) && entry !== current)) continue;
    const stat = fs.statSync(path.join(cache, entry), { throwIfNoEntry: false });
    if (stat !== undefined) old.push({ entry, leftover, at: stat.mtimeMs });
  }
  old.sort((a, b) => b.at - a.at);
  for (const [index, { entry, leftover, at }] of old.entries()) {
    if (Date.now() - at < KEEP_MS || (!leftover && index < KEEP_NEWEST)) continue;
    fs.rmSync(path.join(cache, entry), { recursive: true, force: true });
  }
}
