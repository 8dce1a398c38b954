/** The SQLite store's face: the only module of this room that others import. */
export { openSqliteStore, SqliteStore, type SqliteStoreOptions } from "./store.ts";
