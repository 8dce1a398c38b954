/** The only door for callers: session-scoped operations over runs (DESIGN §9). */
export type * from "./api.ts";
export { ACTION_NAMES } from "./api.ts";
export { type AccessContext, type AccessLimits, DEFAULT_ACCESS_LIMITS } from "./context.ts";
export { createAccess } from "./holdfast.ts";
