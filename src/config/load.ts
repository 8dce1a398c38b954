/**
 * Reads the one configuration file of a workspace. An untrusted workspace has no say: its file is reported
 * and nothing of it is read, whatever its form (DESIGN §11).
 */
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "../domain/errors.ts";
import type { Json, JsonObject } from "../domain/json.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";
import { importConfig } from "./code.ts";
import type { HoldfastConfig } from "./definition.ts";
import { configFiles, type Workspace } from "./workspace.ts";

const MAX_CONFIG_BYTES = 1_048_576;

/** What reads data files with places; the catalog's `readData`, handed in since adapters do not know each other. */
export type ReadDocument = (
  text: string,
  file: string,
) =>
  | {
      readonly value: Json;
      locate(path: readonly (string | number)[], atKey?: boolean): { line: number; column: number };
      readonly diagnostics?: undefined;
    }
  | { readonly diagnostics: readonly Diagnostic[]; readonly value?: undefined };

export interface LoadOptions {
  readonly trusted: boolean;
  readonly readDocument: ReadDocument;
  /** Main module of the running package: what bare `holdfast` in a configuration resolves to. */
  readonly packageEntry?: string;
}

export interface LoadedConfig {
  /** Empty when there is no file or it was not applied. */
  readonly config: HoldfastConfig;
  /** Name of the file in the workspace. */
  readonly file?: string;
  readonly applied: boolean;
  /** Why a file was not applied, and other things to tell; never errors (those are thrown). */
  readonly diagnostics: readonly Diagnostic[];
}

/**
 * @throws HoldfastError `usage`, with `details.diagnostics`, for several files, a file that cannot be read or
 *   loaded, no default export, unknown keys and bad values
 */
export async function loadConfig(workspace: Workspace, options: LoadOptions): Promise<LoadedConfig> {
  const files = configFiles(workspace.root);
  const [file] = files;
  if (file === undefined) return { config: {}, applied: false, diagnostics: [] };
  if (!options.trusted) return { config: {}, file, applied: false, diagnostics: files.map(notTrusted) };
  if (files.length > 1)
    throw refuse(
      `Cannot choose a configuration: the workspace has ${files.join(" and ")}; keep one of them`,
      files.map((each) => whole(each, "several", "only one configuration file may exist", "error")),
    );
  const { checkConfig } = await import("./schema.ts");
  const read = await readConfig(workspace, file, options);
  const { config, faults } = checkConfig(read.value);
  if (config !== undefined) return { config, file, applied: true, diagnostics: [] };
  const diagnostics = faults.map((fault): Diagnostic => {
    const { code, message, hint } = fault;
    const where = read.locate(fault.path, fault.at_key);
    return { file, ...where, code, message, severity: "error", ...(hint === undefined ? {} : { hint }) };
  });
  const [first] = diagnostics;
  const place = first === undefined ? file : `${file}:${first.line}: ${first.message}`;
  throw refuse(`Cannot use the configuration: ${place}; ${first?.hint ?? "correct it"}`, diagnostics);
}

interface ConfigRead {
  readonly value: unknown;
  locate(path: readonly (string | number)[], atKey?: boolean): { line: number; column: number };
}

async function readConfig(workspace: Workspace, file: string, options: LoadOptions): Promise<ConfigRead> {
  const path = join(workspace.root, file);
  const text = readText(path, file);
  if (/\.(?:json|ya?ml)$/.test(file)) {
    const read = options.readDocument(text, file);
    if (read.diagnostics === undefined) return read;
    const [first] = read.diagnostics;
    throw refuse(`Cannot read ${file}:${first?.line}: ${first?.message}; correct it`, read.diagnostics);
  }
  const value = await importConfig(path, {
    stateDir: workspace.state_dir,
    root: workspace.root,
    ...(options.packageEntry === undefined ? {} : { packageEntry: options.packageEntry }),
  });
  return { value, locate: (where) => placeInCode(text, where) };
}

function readText(path: string, file: string): string {
  try {
    const { size } = statSync(path);
    if (size > MAX_CONFIG_BYTES)
      throw refuse(`Cannot read ${file}: it is larger than ${MAX_CONFIG_BYTES} bytes; make it smaller`, []);
    return readFileSync(path, "utf8");
  } catch (error) {
    if (HoldfastError.is(error)) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw refuse(`Cannot read ${file}: the file system says ${code}; make it readable`, []);
  }
}

/** The first line where the keys of the path stand, each after the one before: right for plain object literals. */
function placeInCode(text: string, path: readonly (string | number)[]): { line: number; column: number } {
  let offset = 0;
  for (const part of path) {
    if (typeof part === "number" || !/^[\w$]+$/.test(part)) break;
    const found = new RegExp(`(?<![\\w$.])["']?${part.replaceAll("$", "\\$")}["']?\\s*[:,}(]`).exec(text.slice(offset));
    if (found === null) break;
    offset += found.index;
  }
  const before = text.slice(0, offset);
  return { line: before.split("\n").length, column: offset - before.lastIndexOf("\n") };
}

function notTrusted(file: string): Diagnostic {
  const hint = "read it, then trust the workspace with: holdfast trust";
  return { ...whole(file, "untrusted", "not used: the workspace is not trusted", "warning"), hint };
}

function whole(file: string, code: string, message: string, severity: Diagnostic["severity"]): Diagnostic {
  return { file, line: 1, column: 1, code, message, severity };
}

function refuse(message: string, diagnostics: readonly Diagnostic[]): HoldfastError {
  return new HoldfastError("usage", message, { details: { diagnostics: diagnostics.map((each) => ({ ...each })) } });
}

/** JSON Schema 2020-12 of data configurations, for editors (`holdfast schema config`). */
export async function configEditorSchema(): Promise<JsonObject> {
  const [{ z }, { configSchema }] = await Promise.all([import("zod"), import("./schema.ts")]);
  // Data files cannot hold tools; what cannot be said in JSON Schema is left open.
  const shape = configSchema.omit({ tools: true });
  const schema = z.toJSONSchema(shape, { target: "draft-2020-12", unrepresentable: "any" }) as JsonObject;
  return { ...schema, title: "Holdfast configuration", description: "holdfast.config.yaml or .json (one file only)" };
}
