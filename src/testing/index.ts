/**
 * Exported as `holdfast/testing`: the simulated world and crash-everywhere for those who write workflows and tools,
 * conformance suites for those who add a store, and journals to feed one.
 */
export { type ProcessClock, SimulatedClock, type SimulatedClockOptions, simulatedClock } from "./clock.ts";
export {
  type CrashFailure,
  type CrashOptions,
  type CrashReport,
  crashEverywhere,
  describeFailure,
  type Outcome,
  type Point,
} from "./crash-everywhere.ts";
export { type Effect, EffectLedger, type RecordedCall } from "./effects.ts";
export { type Fault, type FaultPlan, type FaultyStore, faultyStore } from "./faulty-store.ts";
export { frozenEverywhere } from "./frozen.ts";
export { eventsOf, readHistory } from "./history.ts";
export { freshId, SESSION_ID, sessionRecord, startCommit, TestJournal, testWait, treeCommit } from "./journals.ts";
export type { Expectation, Skip, TestKit } from "./kit.ts";
export { failed, type MockTool, ok, type WorldTool } from "./mock-tools.ts";
export { type OwnerSuite, ownerConformance, type TestedOwner } from "./owner.conformance.ts";
export {
  type Action,
  type Answer,
  carefulPerson,
  type FollowOptions,
  follow,
  type Person,
  type PersonOptions,
} from "./person.ts";
export { type Random, seededIds, seededRandom } from "./random.ts";
export { checkRules, JOURNAL_RULES, type Rule, type TreeHistory, type Violation } from "./rules.ts";
export { type RunStoreSuite, runStoreConformance, type TestedStore } from "./run-store.conformance.ts";
export { sampleOf } from "./sample.ts";
export { type SessionStoreSuite, sessionStoreConformance } from "./session-store.conformance.ts";
export {
  createWorld,
  type ProcessOptions,
  type StartOptions,
  World,
  type WorldOptions,
  WorldProcess,
} from "./world.ts";
