/** The only door for callers: session-scoped operations over runs (DESIGN §9). */
export type * from "./api.ts";
export { ACTION_NAMES } from "./api.ts";
export { type AccessContext, type AccessLimits, DEFAULT_ACCESS_LIMITS } from "./context.ts";
export { createAccess } from "./holdfast.ts";
export { diskCheck, nodeCheck } from "./installation.ts";
export { type Notice, Notifier, readNotify } from "./notify/index.ts";
export { refusedToday } from "./preflight.ts";
export type { RunOutcome } from "./run-outcome.ts";
export { type SessionDoc, sessionDoc } from "./session-doc.ts";
export { ToolCallError, type ToolErrorKind, type ToolLog } from "./tool-errors.ts";
export type {
  AiSdkSchema,
  AiSdkTool,
  FunctionTool,
  ToolAnnotations,
  ToolCallOptions,
  ToolSetOptions,
  WorkflowTool,
  WorkflowTools,
} from "./tool-types.ts";
export {
  classifyWorkflowRun,
  MAX_WAIT_MS,
  parseWorkflowRun,
  parseWorkflowWait,
  WORKFLOW_RUN,
  WORKFLOW_RUN_SCHEMA,
  WORKFLOW_WAIT,
  WORKFLOW_WAIT_SCHEMA,
  type WorkflowRunCall,
} from "./workflow-run.ts";
