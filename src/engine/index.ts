/** The engine: journal writer, executor, dispatch, recovery, and the program interpreters. */

export { ENGINE_VERSION } from "./custody.ts";
export { Driver, type DriverOptions } from "./driver.ts";
export { Engine, type NewRun } from "./engine.ts";
export { openHealingStore } from "./healing-store.ts";
export { StepFailure } from "./program.ts";
export { systemClock, systemIds } from "./system.ts";
export { timedStore } from "./timed-store.ts";
export { exportLines, exportSnapshot, type Imported, importJournal, MAX_LINE_BYTES } from "./transfer.ts";
export { loadHeader, loadRun, readJournal } from "./tree/loading.ts";
export { type Standing, standing } from "./tree/standing.ts";
export { hydrateEvents, readArtifact, unpackText } from "./values.ts";
export type { Subscriber } from "./watchers.ts";
export { DEFAULT_LIMITS, type EngineLimits, type EngineOptions, type EnginePorts } from "./work.ts";
