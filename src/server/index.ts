/** HTTP, event streams, OpenAPI, authentication: one more edge over `Holdfast` (DESIGN §12). */
export { type App, createApp } from "./app.ts";
export { createLog, errorFields, type ServerLog } from "./log.ts";
export { Metrics } from "./metrics.ts";
export { mountedHandler } from "./mount.ts";
export { openApiDocument } from "./openapi.ts";
export type { AppOptions, McpHandler, ServerBounds } from "./options.ts";
export { DEFAULT_PORT, type RunningServer, type ServeOptions, startServer } from "./serve.ts";
export { startTelemetry, type Telemetry } from "./telemetry.ts";
export { TokenFolder, type TokenInfo } from "./tokens.ts";
