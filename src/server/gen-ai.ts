/** The OpenTelemetry GenAI names that are used, copied since they are not stable: one place to change them. */
export const GEN_AI_OPERATION = "gen_ai.operation.name";
/** One call of an agent; a span of that operation is named after it. */
export const INVOKE_AGENT = "invoke_agent";
/** No convention counts tokens without telling input from output, so the totals have names of our own. */
export const USAGE_TOKENS = "holdfast.usage.tokens";
export const USAGE_COST_MICROS = "holdfast.usage.cost_micros";
export const USAGE_ESTIMATED = "holdfast.usage.estimated";
