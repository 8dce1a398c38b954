/** Exported as `holdfast/testing`: conformance suites for those who add a store, and journals to feed one. */
export { freshId, SESSION_ID, sessionRecord, startCommit, TestJournal, testWait, treeCommit } from "./journals.ts";
export type { Expectation, Skip, TestKit } from "./kit.ts";
export { type RunStoreSuite, runStoreConformance, type TestedStore } from "./run-store.conformance.ts";
export { type SessionStoreSuite, sessionStoreConformance } from "./session-store.conformance.ts";
