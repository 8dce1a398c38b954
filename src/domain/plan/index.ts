/** Plans: from document to definition, and what can be computed of one without running it. */
export { applyDefaults, checkSchema, compileSchema, isSecretHandle, schemaAt, type Verdict } from "../schema/index.ts";
export { type BindingInput, type Bindings, checkBindings, stepValue } from "./bindings.ts";
export {
  type BudgetField,
  type BudgetResult,
  type CeilingRefusal,
  checkCeilings,
  inheritCeilings,
  readBudgetRequest,
  tightenBudget,
} from "./budget.ts";
export {
  type BundleLimits,
  type BundleRefusal,
  bundleBytes,
  bundleHash,
  checkBundleLimits,
  checkBundleSize,
  definitionHash,
  definitionKey,
  type LimitRefusal,
  maxDepth,
  type NestedRef,
  nestedRefs,
  rootDefinition,
  validateBundle,
} from "./bundle.ts";
export { type NamedClaim, resolveClaims } from "./claims.ts";
export { type Compiled, type CompileEnv, compilePlan, isPreflightProblem } from "./compile.ts";
export { type CredentialFinding, findCredential, isCredentialKey, type ScreenedPlace } from "./credentials.ts";
export * from "./definition.ts";
export { planEditorSchema } from "./editor-schema.ts";
export {
  attemptsKey,
  childPath,
  leafPaths,
  liesBelow,
  placeKey,
  ROOT_PATH,
  readAttemptsKey,
  readRetryKey,
  splitInstance,
} from "./places.ts";
export { momentMs } from "./read.ts";
export { stepTemplates, templateReferences } from "./references.ts";
export { containsSecret, declaredSecrets, secretHandles, substituteSecrets } from "./secrets.ts";
export { TYPED_ID, TYPED_ID_LENGTH } from "./shape.ts";
export { DECISION_SCHEMA } from "./static-value.ts";
export {
  describe,
  type Resolved,
  resolveCondition,
  resolveReference,
  resolveTemplate,
  type TemplateScope,
} from "./template.ts";
export {
  childNodes,
  frontier,
  leafBound,
  leaves,
  type PublicPlan,
  publicPlan,
  type WorstCase,
  worstCase,
} from "./walk.ts";
