/**
 * The one file that knows which SQLite library is used: Node's own `node:sqlite` where its SQLite is new enough,
 * its drop-in `@photostructure/sqlite` elsewhere (Node 20 has none; older Node 22 carries a SQLite from before
 * the WAL repairs of 3.51.3). Everything else in this room speaks to `Db`.
 */
import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** The oldest SQLite whose WAL is trusted here. */
export const OLDEST_SQLITE = "3.51.3";

export type Value = null | number | string | Uint8Array;

/** What both libraries share; the narrow part of it that this room uses. */
interface Statement {
  run(...values: Value[]): { changes: number | bigint; lastInsertRowid: number | bigint };
  get(...values: Value[]): unknown;
  all(...values: Value[]): unknown[];
  iterate(...values: Value[]): IterableIterator<unknown>;
}

interface DatabaseSync {
  readonly isTransaction: boolean;
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

interface SqliteModule {
  readonly DatabaseSync: new (path: string, options: { readOnly?: boolean }) => DatabaseSync;
}

/**
 * An open database with its prepared statements cached by their text (a prepared one is 5 times faster).
 *
 * `@photostructure/sqlite` cannot end a statement: after `close` SQLite keeps the file open, without any lock,
 * until the statements are collected. So a last close may leave an empty `-wal` and a `-shm` beside the file,
 * as a crash would; a database of which only `exec` was used (host locks, drafts) is closed at once.
 */
export interface Db {
  readonly inTransaction: boolean;
  /** Several statements, no values; not cached. */
  exec(sql: string): void;
  run(sql: string, ...values: Value[]): { readonly changes: number; readonly id: number };
  get<T>(sql: string, ...values: Value[]): T | undefined;
  all<T>(sql: string, ...values: Value[]): T[];
  /** Row by row; stop early with `break`. */
  iterate<T>(sql: string, ...values: Value[]): IterableIterator<T>;
  close(): void;
}

/** How a database is opened; tests put faults in between. */
export type OpenDatabase = (path: string, options: { readonly readOnly: boolean }) => Db;

/** Opens a database file, or a private one in memory for `:memory:`. @throws what the library throws */
export const openDatabase: OpenDatabase = (path, options) => {
  const { DatabaseSync } = loadModule();
  const database = new DatabaseSync(path, options.readOnly ? { readOnly: true } : {});
  return wrap(database);
};

function wrap(database: DatabaseSync): Db {
  const statements = new Map<string, Statement>();
  const prepared = (sql: string): Statement => {
    let statement = statements.get(sql);
    if (statement === undefined) {
      statement = database.prepare(sql);
      statements.set(sql, statement);
    }
    return statement;
  };
  return {
    get inTransaction() {
      return database.isTransaction;
    },
    exec: (sql) => database.exec(sql),
    run: (sql, ...values) => {
      const { changes, lastInsertRowid } = prepared(sql).run(...values);
      return { changes: Number(changes), id: Number(lastInsertRowid) };
    },
    // The caller names the row's type beside the SQL that makes it; nothing else can know it.
    get: <T>(sql: string, ...values: Value[]) => prepared(sql).get(...values) as T | undefined,
    all: <T>(sql: string, ...values: Value[]) => prepared(sql).all(...values) as T[],
    iterate: <T>(sql: string, ...values: Value[]) => prepared(sql).iterate(...values) as IterableIterator<T>,
    close: () => {
      statements.clear();
      database.close();
    },
  };
}

/** Ends the statements of closed databases now (see `Db`): for a handle whose file lock stands in the way. */
export function collectStatements(): void {
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  if (typeof collect === "function") collect();
}

let loaded: SqliteModule | undefined;

function loadModule(): SqliteModule {
  loaded ??= loadBuiltin() ?? (createRequire(import.meta.url)("@photostructure/sqlite") as SqliteModule);
  return loaded;
}

function loadBuiltin(): SqliteModule | undefined {
  const version = process.versions["sqlite"];
  if (version === undefined || !atLeast(version, OLDEST_SQLITE)) return undefined;
  return withoutSqliteWarning(() => createRequire(import.meta.url)("node:sqlite") as SqliteModule);
}

/** Node 22 calls its SQLite experimental on stderr at every start; only that line, only while it loads, is left out. */
function withoutSqliteWarning<T>(load: () => T): T {
  const emitWarning = process.emitWarning;
  process.emitWarning = ((warning: string | Error, ...rest: never[]) => {
    if (String(warning).includes("SQLite is an experimental feature")) return;
    emitWarning.call(process, warning, ...rest);
  }) as typeof process.emitWarning;
  try {
    return load();
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** Compares dotted versions by their numbers. */
export function atLeast(version: string, oldest: string): boolean {
  const [a, b] = [version, oldest].map((text) => text.split(".").map(Number));
  for (let i = 0; i < 3; i++) {
    const difference = (a?.[i] ?? 0) - (b?.[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

// A bound string is cut at its first NUL, so text that has one travels as bytes. Bytes never equal a text in
// SQLite, so an id with a NUL can never be mistaken for its own beginning (C21).

/** Text as a value to bind. */
export function bindText(text: string): string | Uint8Array {
  return text.includes("\0") ? Buffer.from(text, "utf8") : text;
}

/** Text as it was bound by `bindText`. */
export function readText(value: string | Uint8Array): string {
  return typeof value === "string" ? value : Buffer.from(value).toString("utf8");
}

/** A hash as its 32 bytes; what is no lowercase hex SHA-256 stays the text it is. */
export function bindHash(hash: string): string | Uint8Array {
  return /^[0-9a-f]{64}$/.test(hash) ? Buffer.from(hash, "hex") : bindText(hash);
}

export function readHash(value: string | Uint8Array): string {
  if (typeof value === "string") return value;
  if (value.byteLength !== 32) return readText(value);
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex");
}
