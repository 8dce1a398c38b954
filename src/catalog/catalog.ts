/**
 * The catalog: which definitions there are, which of them wins its id, and the bundle that a run is pinned to
 * (DESIGN §12 "Files", RP-8, RP-9). It reads data only, never code, so it serves untrusted workspaces as well.
 */
import { statSync } from "node:fs";
import { basename, dirname, extname, join, resolve } from "node:path";
import { HoldfastError } from "../domain/errors.ts";
import { JsonError, normalizeJson } from "../domain/json.ts";
import { nearest } from "../domain/nearest.ts";
import type { Bundle, Definition, Diagnostic, Header } from "../domain/plan/definition.ts";
import type { CompileEnv } from "../domain/plan/index.ts";
import { broken, type CatalogEntry, type Compiled, compileText, compileValue, isDefinitionFile } from "./entry.ts";
import { listFiles, readTextFile, realPath } from "./files.ts";
import { nestedDiagnostics } from "./nested.ts";
import { type BundleLimits, DEFAULT_BUNDLE_LIMITS, type FindNested, pinBundle, refusePreflight } from "./pin.ts";
import {
  type Candidate,
  entryOf,
  Finder,
  type Found,
  type Publication,
  publish,
  type Root,
  rootsOf,
} from "./publication.ts";
import { parseRef } from "./refs.ts";
import { readSkill } from "./skill.ts";

export interface CatalogOptions {
  /** Real path; without one no workspace is looked at. */
  readonly workspace?: string;
  /** The user's own folder (`~/.holdfast`); without one it is not looked at. */
  readonly home?: string;
  /** Folder of the built-in workflows. */
  readonly builtin?: string;
  /** Definitions given in code: documents as a file would hold them. */
  readonly definitions?: readonly unknown[];
  /** What definitions are compiled against. */
  readonly env: CompileEnv;
  /** What relative paths in references start from; default: the workspace, else the current folder. */
  readonly cwd?: string;
  readonly now?: () => number;
}

/** What a reference leads to. */
export interface Resolved {
  readonly entry: CatalogEntry;
  readonly header: Header;
  /** Absent for instructions and broken entries. */
  readonly definition?: Definition;
  /** The text of the file, as kept. */
  readonly source: string;
}

export interface Pinned {
  readonly bundle: Bundle;
  readonly header: Header;
  readonly entry: CatalogEntry;
}

export interface ReloadResult {
  readonly publication_revision: number;
  readonly changed: boolean;
  /** The disk could not be read and the last good publication stays in force (RP-9). */
  readonly failed: boolean;
  readonly diagnostics: readonly Diagnostic[];
}

export interface PinOptions {
  /** Default `DEFAULT_BUNDLE_LIMITS`; `UNTRUSTED_BUNDLE_LIMITS` for model-started runs and untrusted workspaces. */
  readonly limits?: BundleLimits;
  /** Look at the disk first (RP-9). Default true. */
  readonly reload?: boolean;
}

export interface Catalog {
  readonly publication_revision: number;
  /** All, by id and then precedence, with what is broken or shadowed. */
  entries(): readonly CatalogEntry[];
  /** The winner of an id. */
  entry(id: string): CatalogEntry | undefined;
  entryByRevision(id: string, revision: number): CatalogEntry | undefined;
  byHash(hash: string): CatalogEntry | undefined;
  /** Faults of folders and of every entry. */
  diagnostics(): readonly Diagnostic[];
  /** @throws HoldfastError `usage` (no reference), `not_found` with the nearest id */
  resolve(ref: string): Resolved;
  /**
   * The bundle of a start. @throws HoldfastError as `resolve`; `definition` for a broken entry, with
   * `details.diagnostics`; `preflight` for an instruction (`kind`), missing nested workflows and limits (`bundle`)
   */
  pin(ref: string, options?: PinOptions): Pinned;
  /** Looks at the disk again; a new publication only when something changed. */
  reload(): ReloadResult;
  /** Faults of these files and folders; without any: of the whole catalog. Shadowed entries are judged too. */
  checkFiles(paths?: readonly string[]): readonly Diagnostic[];
  /** Faults of a definition's text that is in no file yet; `file` is the name shown, its ending says the form. */
  checkText(text: string, file: string): readonly Diagnostic[];
}

/** Reads all roots once. Faults of single files and folders are diagnostics of the catalog, never thrown. */
export function openCatalog(options: CatalogOptions): Catalog {
  return new DiskCatalog(options);
}

class DiskCatalog implements Catalog {
  readonly #options: CatalogOptions;
  readonly #roots: readonly Root[];
  readonly #finder: Finder;
  readonly #code: readonly Candidate[];
  readonly #cwd: string;
  readonly #now: () => number;
  readonly #pins = new WeakMap<Compiled, { revision: number; limits: BundleLimits; bundle: Bundle }>();
  #found: Found;
  #publication: Publication;

  constructor(options: CatalogOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#cwd = options.cwd ?? options.workspace ?? process.cwd();
    this.#finder = new Finder({ env: options.env, workspace: options.workspace, now: this.#now });
    this.#roots = catalogRoots(options);
    this.#code = (options.definitions ?? []).map((value, i) => codeCandidate(value, i, options.env));
    this.#found = this.#find();
    this.#publication = publish(this.#found, 1, (path) => this.#finder.shown(path));
  }

  get publication_revision(): number {
    return this.#publication.revision;
  }

  entries(): readonly CatalogEntry[] {
    return this.#publication.items.map((item) => item.entry);
  }

  entry(id: string): CatalogEntry | undefined {
    return this.#publication.winners.get(id)?.entry;
  }

  entryByRevision(id: string, revision: number): CatalogEntry | undefined {
    const entry = this.entry(id);
    return entry?.revision === revision ? entry : undefined;
  }

  byHash(hash: string): CatalogEntry | undefined {
    return this.#publication.byHash.get(hash)?.entry;
  }

  diagnostics(): readonly Diagnostic[] {
    const { items, diagnostics } = this.#publication;
    return [...diagnostics, ...items.flatMap((item) => item.entry.diagnostics)];
  }

  resolve(ref: string): Resolved {
    const { compiled, entry } = this.#lookUp(ref);
    const { definition, header, text } = compiled;
    return { entry, header, ...(definition === undefined ? {} : { definition }), source: text };
  }

  pin(ref: string, options: PinOptions = {}): Pinned {
    if (options.reload !== false) this.reload();
    const { compiled, entry } = this.#lookUp(ref);
    if (entry.kind === "instruction")
      refusePreflight(
        "kind",
        `Cannot start "${entry.workflow_id}": it is an instruction for agents, not a workflow; start a workflow`,
      );
    if (compiled.definition === undefined) throw brokenError(entry);
    return { bundle: this.#pinned(compiled, options.limits ?? DEFAULT_BUNDLE_LIMITS), header: compiled.header, entry };
  }

  /** The same object for every start from one publication, so that what is derived from it can be kept by it. */
  #pinned(compiled: Compiled, limits: BundleLimits): Bundle {
    const { revision } = this.#publication;
    const before = this.#pins.get(compiled);
    const { maxDefinitions, maxBytes } = limits;
    if (
      before?.revision === revision &&
      before.limits.maxDefinitions === maxDefinitions &&
      before.limits.maxBytes === maxBytes
    )
      return before.bundle;
    const bundle = pinBundle(compiled, revision, this.#nested, limits);
    this.#pins.set(compiled, { revision, limits: { maxDefinitions, maxBytes }, bundle });
    return bundle;
  }

  reload(): ReloadResult {
    const found = this.#find();
    const { revision } = this.#publication;
    const { diagnostics } = found;
    // RP-9: what could be read before and cannot now is no news about the definitions.
    if ([...found.failed].some((path) => !this.#found.failed.has(path)))
      return {
        publication_revision: revision,
        changed: false,
        failed: true,
        diagnostics: [...diagnostics, ...failures(found)],
      };
    const changed = !sameFound(found, this.#found);
    if (changed) {
      this.#found = found;
      this.#publication = publish(found, revision + 1, (path) => this.#finder.shown(path));
    }
    const { publication_revision } = this;
    return { publication_revision, changed, failed: false, diagnostics: this.diagnostics() };
  }

  checkFiles(paths: readonly string[] = []): readonly Diagnostic[] {
    if (paths.length === 0) {
      const nested = this.#publication.items.flatMap(({ compiled, path }) =>
        this.#checkNested(compiled, path, this.#nested),
      );
      return [...this.diagnostics(), ...nested];
    }
    const diagnostics: Diagnostic[] = [];
    const checked: Candidate[] = [];
    for (const path of paths) this.#gather(path, checked, diagnostics);
    // Files that are checked together may name each other before they are in the catalog.
    const find: FindNested = (id) => {
      const own = checked.find(({ compiled }) => compiled.id === id && compiled.definition !== undefined);
      return own === undefined ? this.#nested(id) : nestedOf(own.compiled, entryOf(own));
    };
    for (const { compiled, path } of checked)
      diagnostics.push(...compiled.diagnostics, ...this.#checkNested(compiled, path, find));
    return diagnostics;
  }

  checkText(text: string, file: string): readonly Diagnostic[] {
    const compiled = compileText(text, file, basename(file, extname(file)), this.#options.env);
    return [...compiled.diagnostics, ...this.#checkNested(compiled, file, this.#nested)];
  }

  readonly #nested: FindNested = (id) => {
    const item = this.#publication.winners.get(id);
    return item === undefined ? undefined : nestedOf(item.compiled, item.entry);
  };

  #find(): Found {
    const found = this.#finder.find(this.#roots);
    return { ...found, candidates: [...found.candidates, ...this.#code] };
  }

  #checkNested(compiled: Compiled, path: string | undefined, find: FindNested): readonly Diagnostic[] {
    if (compiled.definition === undefined) return [];
    const file = path === undefined ? `code:${compiled.id}` : this.#finder.shown(path);
    return nestedDiagnostics(compiled, file, find, this.#options.env);
  }

  #lookUp(ref: string): { readonly compiled: Compiled; readonly entry: CatalogEntry } {
    const parsed = parseRef(ref);
    const { winners, byHash } = this.#publication;
    switch (parsed.by) {
      case "path":
        return this.#atPath(parsed.path);
      case "hash": {
        const item = byHash.get(parsed.hash);
        if (item !== undefined) return item;
        throw new HoldfastError(
          "not_found",
          `Cannot find a workflow with the hash ${parsed.hash.slice(0, 12)}…: none in the catalog has it; it may have changed since`,
        );
      }
      default: {
        const item = winners.get(ref) ?? winners.get(parsed.id);
        if (item === undefined) throw this.#unknown(parsed.id);
        if (parsed.by === "revision" && item.entry.workflow_id !== ref && item.entry.revision !== parsed.revision)
          throw new HoldfastError(
            "not_found",
            `Cannot find "${ref}": the catalog has "${parsed.id}" at revision ${item.entry.revision}; use that one`,
          );
        return item;
      }
    }
  }

  #unknown(id: string): HoldfastError {
    const valid = [...this.#publication.winners.keys()];
    const near = nearest(id, valid);
    const action =
      near !== undefined
        ? `did you mean "${near}"?`
        : `${valid.length === 0 ? "add one (holdfast init)" : "see: holdfast workflows"}`;
    return new HoldfastError("not_found", `Cannot find the workflow "${id}": the catalog has no such id; ${action}`);
  }

  /** A file named by its path: read now, once. What it nests comes from the catalog. */
  #atPath(given: string): { readonly compiled: Compiled; readonly entry: CatalogEntry } {
    const path = definitionIn(resolve(this.#cwd, given));
    const read = readTextFile(path, this.#now());
    if (!read.ok) {
      const code = read.message === "does not exist" ? "not_found" : "usage";
      throw new HoldfastError(code, `Cannot read "${given}": it ${read.message}; give the path of a workflow file`);
    }
    const compiled = this.#compileAt(path, given, read.text);
    return { compiled, entry: entryOf({ compiled, source: "workspace", path }) };
  }

  #compileAt(path: string, shown: string, text: string): Compiled {
    const name = basename(path);
    const stem = basename(path, extname(path));
    if (name !== "SKILL.md") return compileText(text, endingOf(shown, path), stem, this.#options.env);
    const card = readSkill(text, shown);
    if (card.name === undefined) return broken(text, { id: stem, kind: "instruction" }, card.diagnostics);
    return broken(text, { id: card.name, revision: 1, kind: "instruction" }, []);
  }

  /** Reads one path given to `check`: a file, or a folder with all below it. */
  #gather(given: string, checked: Candidate[], diagnostics: Diagnostic[]): void {
    const path = resolve(this.#cwd, given);
    const fault = (file: string, code: string, message: string): void => {
      diagnostics.push({ file, line: 1, column: 1, code, message, severity: "error" });
    };
    if (!isFolder(path)) {
      const read = readTextFile(path, this.#now());
      if (!read.ok) return fault(given, read.code, `the file ${read.message}`);
      if (!isDefinitionFile(path) && basename(path) !== "SKILL.md")
        return fault(given, "kind", "this is no workflow file: those end in .yaml, .yml or .json");
      checked.push({ compiled: this.#compileAt(path, given, read.text), source: "workspace", path });
      return;
    }
    const wanted = (name: string) => isDefinitionFile(name) || name === "SKILL.md";
    const { files, faults } = listFiles(path, realPath(path) ?? path, wanted);
    for (const each of faults) fault(this.#finder.shown(each.path), each.code, `the folder ${each.message}`);
    if (files.length === 0 && faults.length === 0) fault(given, "empty", "the folder holds no workflow files");
    for (const file of files) this.#gather(file, checked, diagnostics);
  }
}

function nestedOf(compiled: Compiled, entry: CatalogEntry): ReturnType<FindNested> {
  const { definition } = compiled;
  return definition === undefined ? { entry } : { entry, definition };
}

function catalogRoots(options: CatalogOptions): Root[] {
  const places: { base: string; source: "workspace" | "user"; boundary: string }[] = [];
  const { workspace, home, builtin } = options;
  const inWorkspace = workspace === undefined ? undefined : realPath(workspace);
  if (inWorkspace !== undefined)
    places.push({ base: join(inWorkspace, ".holdfast"), source: "workspace", boundary: inWorkspace });
  const ofUser = home === undefined ? undefined : realPath(home);
  // The home folder as workspace: its `.holdfast` is the user's own, once.
  if (ofUser !== undefined && !places.some((each) => realPath(each.base) === ofUser)) {
    // People link what is in `~/.holdfast` to elsewhere in their home; that is theirs to do.
    const boundary = basename(ofUser) === ".holdfast" ? dirname(ofUser) : ofUser;
    places.push({ base: ofUser, source: "user", boundary });
  }
  const roots = rootsOf(places);
  const built = builtin === undefined ? undefined : realPath(builtin);
  if (built !== undefined) roots.push({ folder: built, form: "workflows", source: "builtin", boundary: built });
  return roots;
}

function codeCandidate(value: unknown, index: number, env: CompileEnv): Candidate {
  const id = (Object(value) as { id?: unknown }).id;
  const file = `code:${typeof id === "string" ? id : `definition ${index + 1}`}`;
  try {
    return { compiled: compileValue(normalizeJson(value), file, env), source: "code" };
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const message = `this is no JSON: ${error.message}`;
    const fault: Diagnostic = { file, line: 1, column: 1, code: "json", message, severity: "error" };
    return { compiled: broken("", { id: typeof id === "string" ? id : file }, [fault]), source: "code" };
  }
}

function sameFound(a: Found, b: Found): boolean {
  return (
    a.candidates.length === b.candidates.length &&
    a.candidates.every(
      (each, i) => each.compiled === b.candidates[i]?.compiled && each.path === b.candidates[i]?.path,
    ) &&
    JSON.stringify(a.diagnostics) === JSON.stringify(b.diagnostics)
  );
}

/** The faults of files that could not be read, which a failed reload tells besides those of folders. */
function failures(found: Found): Diagnostic[] {
  return found.candidates.flatMap(({ compiled }) => compiled.diagnostics.filter((each) => each.code === "unreadable"));
}

function brokenError(entry: CatalogEntry): HoldfastError {
  const errors = entry.diagnostics.filter((each) => each.severity === "error");
  const [first] = errors;
  const where = first === undefined ? "it has faults" : `${first.file}:${first.line}:${first.column}: ${first.message}`;
  const message = `Cannot start "${entry.workflow_id}": ${where}; ${first?.hint ?? "correct the file"}`;
  const diagnostics = entry.diagnostics.map((each) => ({ ...each }));
  // RP-7: credential material in a definition is refused in preflight.
  if (errors.length > 0 && errors.every((each) => each.code === "credential"))
    return new HoldfastError("preflight", message, { details: { refused: "bundle", diagnostics } });
  return new HoldfastError("definition", message, { details: { diagnostics } });
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** The definition that a path to a skill's folder means. */
function definitionIn(path: string): string {
  if (!isFolder(path)) return path;
  const found = ["workflow.yaml", "workflow.yml", "workflow.json", "SKILL.md"].map((name) => join(path, name));
  return found.find((each) => realPath(each) !== undefined) ?? path;
}

/** The name to show: what was given, unless that was a folder. */
function endingOf(shown: string, path: string): string {
  return extname(shown) === extname(path) ? shown : join(shown, basename(path));
}
