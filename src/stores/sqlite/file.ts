/**
 * The database as a file: the state folder, whether a file is ours and of a version we know, and how a new one
 * comes to be. Whatever is refused here has been read only: not one byte of it, or beside it, is written.
 */
import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { HoldfastError } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import type { OpenDatabase } from "./driver.ts";
import { storageFault } from "./faults.ts";
import { APPLICATION_ID, SCHEMA, SCHEMA_VERSION } from "./schema.ts";

/**
 * Files that this process has opened through SQLite, as device and inode. POSIX drops all locks that a process
 * holds on a file when it closes *any* descriptor of it, so such a file must never be opened by hand: another
 * process could then delete its log. For good, because the library may keep a closed handle until its statements
 * are collected. Shared by all copies of this module in the process.
 */
const OPENED_FILES = Symbol.for("holdfast.sqlite.opened_files");

function openedFiles(): Set<string> {
  const holder = globalThis as { [OPENED_FILES]?: Set<string> };
  holder[OPENED_FILES] ??= new Set();
  return holder[OPENED_FILES];
}

function identity(stat: fs.Stats): string {
  return `${stat.dev}:${stat.ino}`;
}

/** To be called when SQLite has opened the file. */
export function markOpened(file: string): void {
  openedFiles().add(identity(fs.statSync(file)));
}

/**
 * Makes sure that a store of a known version is at `file`, making folder and file when they are missing.
 * @throws HoldfastError `storage`: no Holdfast store, another version, or (read-only) nothing there
 */
export function prepareFile(file: string, readOnly: boolean, open: OpenDatabase): void {
  const state = inspect(file);
  if (state === "store") return;
  if (readOnly)
    throw refusal(file, "no store is there", "start a run first, or choose another path", { missing: true });
  if (state === "missing") create(file, open);
  else fill(file, open);
}

function inspect(file: string): "missing" | "empty" | "store" {
  const stat = fs.statSync(file, { throwIfNoEntry: false });
  if (stat === undefined) return "missing";
  if (!stat.isFile()) throw refusal(file, "it is not a file", "choose another path");
  if (stat.size === 0) return "empty";
  if (openedFiles().has(identity(stat))) return "store";
  const header = newestHeader(file);
  assertOurs(file, header?.readUInt32BE(68) ?? 0, header?.readUInt32BE(60) ?? 0);
  return "store";
}

/** @throws HoldfastError `storage` unless it is a Holdfast store of the version that this build knows */
export function assertOurs(file: string, applicationId: number, version: number): void {
  if (applicationId !== APPLICATION_ID)
    throw refusal(file, "the file is no Holdfast store", "choose another path; nothing was changed");
  if (version === SCHEMA_VERSION) return;
  const todo = version > SCHEMA_VERSION ? "upgrade Holdfast" : "restore a backup";
  throw refusal(file, `its schema is ${version}, this build knows ${SCHEMA_VERSION}`, `${todo}; nothing was changed`);
}

function refusal(file: string, state: string, todo: string, details: JsonObject = {}): HoldfastError {
  return new HoldfastError("storage", `Cannot open "${file}": ${state}; ${todo}`, { details });
}

const HEADER_BYTES = 100;
/** The last bit says how the log's checksums are ordered. */
const LOG_MAGIC = 0x377f0682;

/** The database header as its readers would see it: from the file, or from a commit still in the log. */
function newestHeader(file: string): Buffer | undefined {
  const header = readBytes(file, 0, HEADER_BYTES);
  if (header.length < HEADER_BYTES || header.toString("latin1", 0, 16) !== "SQLite format 3\0") return undefined;
  return headerInLog(`${file}-wal`) ?? header;
}

/**
 * A newer build may have raised the version in a commit that is only in the log yet, so the log is read too:
 * 32 bytes of header, then frames of 24 bytes and a page; a frame counts with the log's salt, and up to the
 * last one that ends a commit.
 */
function headerInLog(log: string): Buffer | undefined {
  if ((fs.statSync(log, { throwIfNoEntry: false })?.size ?? 0) < 32) return undefined;
  const fd = fs.openSync(log, "r");
  try {
    const head = readAt(fd, 0, 32);
    if ((head.readUInt32BE(0) & ~1) >>> 0 !== LOG_MAGIC) return undefined;
    const pageSize = head.readUInt32BE(8);
    let pending: Buffer | undefined;
    let found: Buffer | undefined;
    for (let at = 32; ; at += 24 + pageSize) {
      const frame = readAt(fd, at, 24 + HEADER_BYTES);
      if (frame.length < 24 + HEADER_BYTES || !frame.subarray(8, 16).equals(head.subarray(16, 24))) return found;
      if (frame.readUInt32BE(0) === 1) pending = frame.subarray(24);
      if (frame.readUInt32BE(4) !== 0) found = pending ?? found;
    }
  } finally {
    fs.closeSync(fd);
  }
}

function readBytes(file: string, at: number, length: number): Buffer {
  const fd = fs.openSync(file, "r");
  try {
    return readAt(fd, at, length);
  } finally {
    fs.closeSync(fd);
  }
}

function readAt(fd: number, at: number, length: number): Buffer {
  const buffer = Buffer.alloc(length);
  return buffer.subarray(0, fs.readSync(fd, buffer, 0, length, at));
}

/**
 * A new store is made whole under another name and then linked to its own, so that no crash leaves half of one
 * and of two processes that start together both use the same.
 */
function create(file: string, open: OpenDatabase): void {
  makeFolder(path.dirname(file));
  const draft = `${file}.${randomUUID()}.new`;
  try {
    fs.closeSync(fs.openSync(draft, "wx", 0o600));
    fill(draft, open);
    publish(draft, file);
  } catch (error) {
    throw fileFault(`create the store "${file}"`, error);
  } finally {
    for (const end of ["", "-journal"]) fs.rmSync(draft + end, { force: true });
  }
}

function publish(draft: string, file: string): void {
  try {
    fs.linkSync(draft, file);
  } catch (error) {
    const code = errorCode(error);
    if (code === "EEXIST") return;
    // Some file systems have no hard links.
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "EOPNOTSUPP" && code !== "ENOSYS") throw error;
    if (!fs.existsSync(file)) fs.renameSync(draft, file);
  }
  syncFolder(path.dirname(file));
}

/** Writes the schema into an empty file, unless another process has. */
function fill(file: string, open: OpenDatabase): void {
  let db: ReturnType<OpenDatabase> | undefined;
  try {
    db = open(file, { readOnly: false });
    db.exec("PRAGMA busy_timeout = 2000; PRAGMA synchronous = FULL; BEGIN EXCLUSIVE");
    if (fs.statSync(file).size === 0) db.exec(SCHEMA);
    db.exec("COMMIT");
  } catch (error) {
    throw storageFault(`create the store "${file}"`, error, "none");
  } finally {
    db?.close();
  }
}

/** The state folder: for its owner only, and ignored by git. A folder that was there is left as it is. */
function makeFolder(folder: string): void {
  try {
    if (fs.mkdirSync(folder, { recursive: true, mode: 0o700 }) === undefined) return;
    fs.writeFileSync(path.join(folder, ".gitignore"), "*\n", { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (errorCode(error) !== "EEXIST") throw fileFault(`create the folder "${folder}"`, error);
  }
}

function syncFolder(folder: string): void {
  try {
    const fd = fs.openSync(folder, "r");
    try {
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
  } catch (error) {
    // Windows cannot open a folder; there is nothing to flush there.
    if (!["EISDIR", "EPERM", "EACCES", "EINVAL"].includes(errorCode(error) ?? "")) throw error;
  }
}

export function errorCode(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

const FILE_STATES = new Map([
  ["ENOSPC", "the disk is full; free space and try again"],
  ["EACCES", "permission is denied; check the permissions of the folder"],
  ["EPERM", "permission is denied; check the permissions of the folder"],
  ["EROFS", "the file system is read-only; choose another path"],
  ["ENOTDIR", "a part of the path is not a folder; choose another path"],
  ["EEXIST", "a part of the path is not a folder; choose another path"],
]);

function fileFault(act: string, error: unknown): Error {
  const state = FILE_STATES.get(errorCode(error) ?? "");
  if (state === undefined) return storageFault(act, error, "none");
  return new HoldfastError("storage", `Cannot ${act}: ${state}`, { cause: error, details: { outcome: "none" } });
}
