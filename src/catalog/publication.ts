/**
 * One publication: an immutable, numbered view of everything the roots hold (RP-9). Built from the disk once, with
 * the texts kept, so that pinning never reads a second time; texts that have not changed are not compiled again.
 */
import { basename, dirname, extname, join, relative, sep } from "node:path";
import type { Diagnostic } from "../domain/plan/definition.ts";
import type { CompileEnv } from "../domain/plan/index.ts";
import {
  broken,
  type CatalogEntry,
  type Compiled,
  compileText,
  type EntrySource,
  isDefinitionFile,
  toolNameOf,
} from "./entry.ts";
import { type FileRead, type Listing, listFiles, readTextFile, stampOf } from "./files.ts";
import { readSkill } from "./skill.ts";

/** A folder of definitions, in order of precedence. */
export interface Root {
  readonly folder: string;
  /** `workflows`: definition files, also in subfolders. `skills`: one folder a skill. */
  readonly form: "workflows" | "skills";
  readonly source: EntrySource;
  /** Real path that links must stay in. */
  readonly boundary: string;
}

/** One definition found, whether it wins its id or not. */
export interface Candidate {
  readonly compiled: Compiled;
  readonly source: EntrySource;
  readonly path?: string;
}

export interface Item extends Candidate {
  readonly entry: CatalogEntry;
}

export interface Publication {
  readonly revision: number;
  /** By id, then precedence: winners and what they hide. */
  readonly items: readonly Item[];
  readonly winners: ReadonlyMap<string, Item>;
  readonly byHash: ReadonlyMap<string, Item>;
  /** Faults of folders; those of definitions are in their entries. */
  readonly diagnostics: readonly Diagnostic[];
}

/** What a look at the disk found. */
export interface Found {
  readonly candidates: readonly Candidate[];
  readonly diagnostics: readonly Diagnostic[];
  /** Paths at which the file system failed (RP-9's reload failure). */
  readonly failed: ReadonlySet<string>;
}

/** Reads and compiles, remembering what it read: an unchanged file costs one `stat`. */
export class Finder {
  readonly #env: CompileEnv;
  readonly #workspace: string | undefined;
  readonly #now: () => number;
  readonly #reads = new Map<string, FileRead>();
  /** Definitions of built-in folders, read once. */
  readonly #shipped = new Map<string, readonly Candidate[]>();
  readonly #compiled = new Map<string, { readonly reads: readonly FileRead[]; readonly compiled: Compiled }>();

  constructor(options: { env: CompileEnv; workspace?: string | undefined; now: () => number }) {
    this.#env = options.env;
    this.#workspace = options.workspace;
    this.#now = options.now;
  }

  /** Everything below the roots, in order of precedence. */
  find(roots: readonly Root[]): Found {
    const candidates: Candidate[] = [];
    const diagnostics: Diagnostic[] = [];
    const failed = new Set<string>();
    const alive = new Set<string>();
    for (const root of roots) {
      const shipped = this.#shipped.get(root.folder);
      if (shipped !== undefined) {
        candidates.push(...shipped);
        for (const { path } of shipped) if (path !== undefined) alive.add(path);
        continue;
      }
      const listing =
        root.form === "skills" ? listSkills(root) : listFiles(root.folder, root.boundary, isDefinitionFile);
      for (const { path, code, message, failed: io } of listing.faults) {
        if (io) failed.add(path);
        diagnostics.push(this.#fault(path, code, `the folder ${message}`, io ? "error" : "warning"));
      }
      const groups = root.form === "skills" ? groupSkills(root, listing.files) : listing.files.map((file) => [file]);
      for (const files of groups) {
        const reads = files.map((file) => this.#read(file, root.boundary, failed, alive));
        const path = files[0] as string;
        const compiled = this.#compile(root, files, reads);
        candidates.push({ compiled, source: root.source, path });
      }
      // What the package ships does not change while it runs, and every start looks here (RP-9).
      if (root.source === "builtin" && listing.faults.length === 0)
        this.#shipped.set(
          root.folder,
          candidates.filter(({ source }) => source === "builtin"),
        );
    }
    // A folder that fails says nothing about its files.
    if (failed.size === 0) for (const path of this.#reads.keys()) if (!alive.has(path)) this.#forget(path);
    return { candidates, diagnostics, failed };
  }

  /** Name of a file in messages: from the workspace when it is in there. */
  shown(path: string): string {
    if (this.#workspace === undefined) return path;
    const name = relative(this.#workspace, path);
    return name.startsWith("..") || name === "" ? path : name.split(sep).join("/");
  }

  #read(path: string, boundary: string, failed: Set<string>, alive: Set<string>): FileRead {
    alive.add(path);
    const before = this.#reads.get(path);
    const nowMs = this.#now();
    if (before?.ok && before.stamp.settled && stampOf(path, nowMs)?.key === before.stamp.key) return before;
    const read = readTextFile(path, nowMs, boundary);
    if (!read.ok && read.failed) failed.add(path);
    // The object of the same text is kept: its compiled form hangs on it.
    const kept =
      before?.ok && read.ok && before.text === read.text ? Object.assign(before, { stamp: read.stamp }) : read;
    // A failing disk does not make what was read before forgotten (RP-9).
    if (read.ok || !read.failed || !before?.ok) this.#reads.set(path, kept);
    return kept;
  }

  #compile(root: Root, files: readonly string[], reads: readonly FileRead[]): Compiled {
    const key = files[0] as string;
    const before = this.#compiled.get(key);
    if (before?.reads.length === reads.length && before.reads.every((read, i) => same(read, reads[i])))
      return before.compiled;
    const compiled = root.form === "skills" ? this.#skill(files, reads) : this.#file(key, reads[0] as FileRead);
    if (before === undefined || !reads.some((read) => !read.ok && read.failed))
      this.#compiled.set(key, { reads, compiled });
    return compiled;
  }

  #file(path: string, read: FileRead, stem = basename(path, extname(path))): Compiled {
    if (read.ok) return compileText(read.text, this.shown(path), stem, this.#env);
    return broken("", { id: stem }, [this.#fault(path, read.code, `the file ${read.message}`, "error")]);
  }

  /** `files`: the workflow file when there is one, and SKILL.md. */
  #skill(files: readonly string[], reads: readonly FileRead[]): Compiled {
    const name = basename(dirname(files[0] as string));
    const at = files.findIndex((file) => basename(file) === SKILL_FILE);
    const card = at === -1 ? undefined : this.#card(files[at] as string, reads[at] as FileRead);
    if (at === 0) {
      if (card?.name === undefined) return broken("", { id: name, kind: "instruction" }, card?.diagnostics ?? []);
      const text = reads[0]?.ok ? reads[0].text : "";
      const instruction = broken(text, { id: card.name, revision: 1, kind: "instruction" }, []);
      return { ...instruction, header: { ...instruction.header, title: card.name, description: card.description } };
    }
    const compiled = this.#file(files[0] as string, reads[0] as FileRead, name);
    if (card?.name !== undefined) {
      const header = { title: card.name, description: card.description, ...compiled.header };
      return { ...compiled, header };
    }
    // The workflow runs without its card, which is for reading.
    const missing = this.#fault(dirname(files[0] as string), "no_skill_file", `${SKILL_FILE} is missing`, "warning");
    const warnings = card?.diagnostics.map((each) => ({ ...each, severity: "warning" as const })) ?? [missing];
    return { ...compiled, diagnostics: [...compiled.diagnostics, ...warnings] };
  }

  #card(path: string, read: FileRead): ReturnType<typeof readSkill> {
    if (read.ok) return readSkill(read.text, this.shown(path));
    return { diagnostics: [this.#fault(path, read.code, `the file ${read.message}`, "error")] };
  }

  #fault(path: string, code: string, message: string, severity: Diagnostic["severity"]): Diagnostic {
    return { file: this.shown(path), line: 1, column: 1, code, message, severity };
  }

  #forget(path: string): void {
    this.#reads.delete(path);
    this.#compiled.delete(path);
  }
}

/** Failed reads are equal when they say the same. */
function same(a: FileRead, b: FileRead | undefined): boolean {
  return a === b || (!a.ok && b?.ok === false && a.code === b.code && a.message === b.message);
}

const SKILL_FILE = "SKILL.md";

function listSkills(root: Root): Listing {
  const wanted = (name: string) => name === SKILL_FILE || isSkillWorkflow(name);
  // Deeper folders hold a skill's own material and are none of the catalog's business.
  const listing = listFiles(root.folder, root.boundary, wanted, 1);
  return { files: listing.files, faults: listing.faults.filter((fault) => fault.code !== "too_deep") };
}

function isSkillWorkflow(name: string): boolean {
  return isDefinitionFile(name) && basename(name, extname(name)) === "workflow";
}

/** Files of each skill, its workflow first. */
function groupSkills(root: Root, files: readonly string[]): string[][] {
  const groups = new Map<string, string[]>();
  for (const file of files) {
    const folder = dirname(file);
    if (folder === root.folder) continue;
    const group = groups.get(folder) ?? [];
    if (basename(file) === SKILL_FILE) group.push(file);
    else group.unshift(file);
    groups.set(folder, group);
  }
  return [...groups.values()];
}

/** Orders what was found by id and precedence, and says what hides what (DESIGN §12). */
export function publish(found: Found, revision: number, shown: (path: string) => string): Publication {
  const groups = new Map<string, Candidate[]>();
  for (const candidate of found.candidates) {
    const group = groups.get(candidate.compiled.id);
    if (group === undefined) groups.set(candidate.compiled.id, [candidate]);
    else group.push(candidate);
  }
  const items: Item[] = [];
  const winners = new Map<string, Item>();
  const byHash = new Map<string, Item>();
  for (const id of [...groups.keys()].sort()) {
    const [first, ...hidden] = groups.get(id) as [Candidate, ...Candidate[]];
    const winner: Item = { ...first, entry: winnerEntry(first, hidden, shown) };
    winners.set(id, winner);
    items.push(winner);
    if (winner.compiled.hash !== undefined) byHash.set(winner.compiled.hash, winner);
    for (const each of hidden) items.push({ ...each, entry: hiddenEntry(each, first, shown) });
  }
  return { revision, items, winners, byHash, diagnostics: found.diagnostics };
}

function nameOf(candidate: Candidate, shown: (path: string) => string): string {
  return candidate.path === undefined ? `the definition given in code` : shown(candidate.path);
}

function winnerEntry(winner: Candidate, hidden: readonly Candidate[], shown: (path: string) => string): CatalogEntry {
  const entry = entryOf(winner);
  const [next] = hidden;
  if (entry.state !== "broken" || next === undefined) return entry;
  const message = `while this file is broken, nothing runs under the id "${entry.workflow_id}": it hides ${nameOf(next, shown)}`;
  return { ...entry, diagnostics: [...entry.diagnostics, notice(winner, "hides", message, shown)] };
}

function hiddenEntry(candidate: Candidate, winner: Candidate, shown: (path: string) => string): CatalogEntry {
  const entry = entryOf(candidate);
  const why =
    winner.source === candidate.source
      ? `${nameOf(winner, shown)} has the same id; give one of them another`
      : `${nameOf(winner, shown)} comes first (${winner.source} before ${candidate.source})`;
  const diagnostic = notice(candidate, "shadowed", `not used: ${why}`, shown);
  const { tool_name: _, ...rest } = entry;
  return { ...rest, state: "shadowed", diagnostics: [...entry.diagnostics, diagnostic] };
}

function notice(candidate: Candidate, code: string, message: string, shown: (path: string) => string): Diagnostic {
  const { line, column } = candidate.compiled.locate(["id"]);
  const file = candidate.path === undefined ? `code:${candidate.compiled.id}` : shown(candidate.path);
  return { file, line, column, code, message, severity: "warning" };
}

/** The entry of a definition on its own, before anything hides it. */
export function entryOf({ compiled, source, path }: Candidate): CatalogEntry {
  const { definition, header, hash } = compiled;
  const valid = definition !== undefined || (compiled.kind === "instruction" && compiled.revision > 0);
  const tool = definition === undefined ? undefined : toolNameOf(compiled.id);
  return {
    workflow_id: compiled.id,
    revision: compiled.revision,
    kind: compiled.kind,
    ...(header.title === undefined ? {} : { title: header.title }),
    ...(header.description === undefined ? {} : { description: header.description }),
    source,
    ...(path === undefined ? {} : { path }),
    ...(hash === undefined ? {} : { definition_hash: hash }),
    invocation_policy: header.invocation_policy,
    ...(tool === undefined ? {} : { tool_name: tool }),
    ...(definition === undefined ? {} : { input_schema: definition.input_schema }),
    ...(definition?.output_schema === undefined ? {} : { output_schema: definition.output_schema }),
    state: valid ? "valid" : "broken",
    diagnostics: compiled.diagnostics,
  };
}

/** Where definitions are looked for, first wins (DESIGN §12). */
export function rootsOf(
  places: readonly { readonly base: string; readonly source: EntrySource; readonly boundary: string }[],
): Root[] {
  return places.flatMap(({ base, source, boundary }) => [
    { folder: join(base, "workflows"), form: "workflows" as const, source, boundary },
    { folder: join(base, "skills"), form: "skills" as const, source, boundary },
  ]);
}
