/** Finding, reading and pinning definitions (DESIGN §12 "Files", RP-8 … RP-13). */
export { builtinFolder } from "./builtin-folder.ts";
export {
  type Catalog,
  type CatalogOptions,
  openCatalog,
  type Pinned,
  type PinOptions,
  type ReloadResult,
  type Resolved,
} from "./catalog.ts";
export {
  type DataDocument,
  type DocumentPath,
  MAX_FILE_BYTES,
  type Place,
  type ReadResult,
  type RefusedDocument,
} from "./document.ts";
export { type CatalogEntry, type EntrySource, isDefinitionFile, place, readData, toolNameOf } from "./entry.ts";
export { readJson } from "./json.ts";
export { type BundleLimits, DEFAULT_BUNDLE_LIMITS, UNTRUSTED_BUNDLE_LIMITS } from "./pin.ts";
export { type ParsedRef, parseRef } from "./refs.ts";
export { readSkill, type SkillResult } from "./skill.ts";
export { readYaml } from "./yaml.ts";
