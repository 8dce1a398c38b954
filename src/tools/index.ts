/** What does the work of tool steps: file tools, tools in code, and who may use them (DESIGN §6, §11, §12). */
export {
  type AnyTool,
  type CancelQuery,
  defineTool,
  isTool,
  type LookupQuery,
  type ObserveQuery,
  type PlanQuery,
  type Tool,
  type ToolContext,
  type ToolOptions,
} from "./define.ts";
export { fileTools } from "./files/index.ts";
export { createPolicy, type Permission, type Permissions } from "./policy.ts";
export { createToolRegistry, type RegistryOptions, type ToolGroup } from "./registry.ts";
export { createSecrets, denySecrets, type Environment, type SecretOptions } from "./secrets.ts";
export {
  type Checked,
  isStandardSchema,
  type SchemaIssue,
  type SchemaLike,
  toJsonSchema,
  validateStandard,
} from "./standard-schema.ts";
export { ToolError, type ToolErrorKind } from "./tool-error.ts";
