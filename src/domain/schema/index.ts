/** JSON Schema in the closed subset of RP-2 and DESIGN §8: checking, validating, walking. */
export { type CheckSchemaOptions, checkSchema, type Path } from "./check.ts";
export { didYouMean } from "./hint.ts";
export { applyDefaults, checkInputSchema } from "./inputs.ts";
export {
  KEYWORD_NAMES,
  KEYWORDS,
  type KeywordName,
  SCHEMA_LIMITS,
  TYPE_NAMES,
  withoutAnnotations,
} from "./keywords.ts";
export { compilePattern, type Pattern } from "./pattern.ts";
export { compileSchema, isSecretHandle, type Validator, type Verdict } from "./validator.ts";
export { isArrayIndex, schemaAt, schemaBelow } from "./walk.ts";
