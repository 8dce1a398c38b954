/**
 * What the catalog knows of one definition: the entry that is shown (interfaces §1 `WorkflowEntry`) and, when it
 * compiles, the definition that runs. Also the compiling itself, from text or from a value given in code.
 */
import type { Json, JsonObject } from "../domain/json.ts";
import type { Definition, Diagnostic, Header, InvocationPolicy, Problem } from "../domain/plan/definition.ts";
import { DEFAULT_INVOCATION_POLICY } from "../domain/plan/definition.ts";
import { type CompileEnv, compilePlan, definitionHash } from "../domain/plan/index.ts";
import type { DefinitionKind } from "../domain/run.ts";
import type { DataDocument, DocumentPath, ReadResult } from "./document.ts";
import { readJson } from "./json.ts";
import { readYaml } from "./yaml.ts";

export type EntrySource = "workspace" | "user" | "builtin" | "code";

/** As interfaces §1; `revision` is 0 where a broken file does not tell one. */
export interface CatalogEntry {
  readonly workflow_id: string;
  readonly revision: number;
  readonly kind: DefinitionKind | "instruction";
  readonly title?: string;
  readonly description?: string;
  readonly source: EntrySource;
  /** Absolute. */
  readonly path?: string;
  readonly definition_hash?: string;
  readonly invocation_policy: InvocationPolicy;
  /** Name of the typed tool, for ids that can be one. */
  readonly tool_name?: string;
  readonly input_schema?: JsonObject;
  readonly output_schema?: JsonObject;
  readonly state: "valid" | "broken" | "shadowed";
  readonly diagnostics: readonly Diagnostic[];
}

/** Everything that was learnt from one text. Immutable; kept for as long as a publication that holds it. */
export interface Compiled {
  readonly id: string;
  readonly revision: number;
  readonly kind: CatalogEntry["kind"];
  readonly header: Header;
  /** Present exactly when the definition can run. */
  readonly definition?: Definition;
  readonly hash?: string;
  readonly diagnostics: readonly Diagnostic[];
  /** The bytes it was compiled from, as text. */
  readonly text: string;
  readonly locate: DataDocument["locate"];
}

/** File endings that are looked at, and what they hold. */
const DATA_ENDINGS = [".yaml", ".yml", ".json"] as const;
const SCRIPT_ENDINGS = [".lua", ".ts", ".js", ".mjs"] as const;
export const DEFINITION_ENDINGS: readonly string[] = [...DATA_ENDINGS, ...SCRIPT_ENDINGS, ".toml"];

/** True for the names of files that hold, or claim to hold, a definition. */
export function isDefinitionFile(name: string): boolean {
  const lower = name.toLowerCase();
  // Editor schemas and type declarations lie beside definitions and are none.
  if (lower.endsWith(".schema.json") || lower.endsWith(".d.ts")) return false;
  return DEFINITION_ENDINGS.some((ending) => lower.endsWith(ending));
}

/** Typed tools: an MCP tool name holds at most 64 characters, `workflow__` takes ten. */
export function toolNameOf(id: string): string | undefined {
  return /^[a-z][a-z0-9]*([_-][a-z0-9]+)*$/.test(id) && id.length <= 54 ? `workflow__${id}` : undefined;
}

/** YAML or, for names that end in `.json`, strict JSON. */
export function readData(text: string, file: string): ReadResult {
  return file.toLowerCase().endsWith(".json") ? readJson(text, file) : readYaml(text, file);
}

/**
 * Compiles the text of a definition file.
 * @param file name shown in diagnostics
 * @param stem what the id is taken for when the text does not say
 */
export function compileText(text: string, file: string, stem: string, env: CompileEnv): Compiled {
  const lower = file.toLowerCase();
  if (SCRIPT_ENDINGS.some((ending) => lower.endsWith(ending))) return notRunYet("script", text, file, stem);
  if (lower.endsWith(".toml")) return notRunYet("graph", text, file, stem);
  const read = readData(text, file);
  if (read.diagnostics !== undefined) return broken(text, { id: guessId(text) ?? stem }, read.diagnostics);
  if (Object.hasOwn(Object(read.value), "workflow_source_version"))
    return notRunYet("graph", text, file, textOf(read.value, "workflow_id") ?? stem);
  return compileDocument(read, text, file, stem, env);
}

/** Compiles a definition that was given in code; its places are all the first line. */
export function compileValue(value: Json, file: string, env: CompileEnv): Compiled {
  const document: DataDocument = { value, locate: () => ({ line: 1, column: 1 }) };
  return compileDocument(document, JSON.stringify(value), file, "unnamed", env);
}

function compileDocument(document: DataDocument, text: string, file: string, stem: string, env: CompileEnv): Compiled {
  const { value, locate } = document;
  const id = textOf(value, "id") ?? stem;
  const revision = revisionOf(value);
  if (!Object.hasOwn(Object(value), "workflow_schema")) {
    const at = { file, ...locate([]), severity: "error" as const };
    const message = "this is no workflow: the key `workflow_schema` is missing";
    return broken(text, { id, revision }, [
      { ...at, code: "no_marker", message, hint: "start with workflow_schema: 1" },
    ]);
  }
  const { definition, header, problems } = compilePlan(value, env);
  const diagnostics = problems.map((problem) => place(problem, file, locate));
  if (definition === undefined || problems.some((problem) => problem.severity === "error"))
    return { ...broken(text, { id, revision }, diagnostics), header, locate };
  const common = { kind: "plan" as const, header, text, locate, diagnostics };
  return { ...common, id: definition.id, revision: definition.revision, definition, hash: definitionHash(definition) };
}

/** A fault found by compiling, with its line and column. */
export function place(problem: Problem, file: string, locate: DataDocument["locate"]): Diagnostic {
  const { code, message, severity, hint } = problem;
  const where = locate(problem.path as DocumentPath, problem.at_key === true);
  return { file, ...where, code, message, severity, ...(hint === undefined ? {} : { hint }) };
}

export const NO_HEADER: Header = { invocation_policy: DEFAULT_INVOCATION_POLICY };

/** What could be learnt of a text that is no definition. */
export function broken(
  text: string,
  known: { readonly id: string; readonly revision?: number; readonly kind?: Compiled["kind"] },
  diagnostics: readonly Diagnostic[],
): Compiled {
  const { id, revision = 0, kind = "plan" } = known;
  return { id, revision, kind, header: NO_HEADER, diagnostics, text, locate: () => ({ line: 1, column: 1 }) };
}

function notRunYet(kind: "graph" | "script", text: string, file: string, id: string): Compiled {
  const message = `this is a ${kind}; this version of Holdfast runs plans only (YAML or JSON with workflow_schema: 1)`;
  return broken(text, { id, kind }, [{ file, line: 1, column: 1, code: "kind", message, severity: "error" }]);
}

/** The id of a text that cannot be parsed, so that it still hides what it overrides (DESIGN §12). */
function guessId(text: string): string | undefined {
  return /^(?:"id"|'id'|id)[ \t]*:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9_-]{0,127})["']?[ \t]*(?:#.*)?\r?$/m.exec(text)?.[1];
}

function textOf(value: Json, key: string): string | undefined {
  const found = getMember(value, key);
  return typeof found === "string" && found.trim() !== "" ? found : undefined;
}

function revisionOf(value: Json): number {
  const found = getMember(value, "revision");
  return typeof found === "number" && Number.isSafeInteger(found) && found >= 1 ? found : 0;
}

function getMember(value: Json, key: string): Json | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return Object.hasOwn(value, key) ? (value as JsonObject)[key] : undefined;
}
