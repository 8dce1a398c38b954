/** The catalog over real folders: precedence, links, publications, references, pinning. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { HoldfastError } from "../domain/errors.ts";
import { hashJson } from "../domain/json.ts";
import { type Catalog, type CatalogOptions, openCatalog } from "./catalog.ts";
import { UNTRUSTED_BUNDLE_LIMITS } from "./pin.ts";

let base: string;
let workspace: string;
let home: string;
/** Past what file systems' coarse stamps need (`Stamp.settled`). */
let nowMs: number;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "holdfast catalog "));
  workspace = join(base, "work");
  home = join(base, "user", ".holdfast");
  mkdirSync(workspace);
  mkdirSync(home, { recursive: true });
  nowMs = Date.now();
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

function open(more: Partial<CatalogOptions> = {}): Catalog {
  return openCatalog({ workspace, home, env: { maxConcurrency: 64 }, now: () => nowMs, ...more });
}

function write(path: string, text: string): string {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
}

const inWork = (name: string, text: string) => write(join(workspace, ".holdfast", name), text);
const inHome = (name: string, text: string) => write(join(home, name), text);

function plan(id: string, more = "", revision = 1): string {
  return `workflow_schema: 1
id: ${id}
revision: ${revision}
${more}steps:
  - {id: look, type: tool, tool: Glob, args: {pattern: "*"}, capabilities: [read]}
plan: {type: step, step: look}
`;
}

function nesting(id: string, ...nested: string[]): string {
  const steps = nested.map((each, i) => {
    const [workflow, revision = "1"] = each.split("@");
    return `  - {id: s${i}, type: workflow, workflow_id: ${workflow}, revision: ${revision}, args: {}}`;
  });
  const nodes = nested.map((_, i) => `{type: step, step: s${i}}`).join(", ");
  return `workflow_schema: 1\nid: ${id}\nrevision: 1\nsteps:\n${steps.join("\n")}\nplan: {type: sequence, nodes: [${nodes}]}\n`;
}

const brief = (catalog: Catalog) =>
  catalog.entries().map((each) => `${each.workflow_id}@${each.revision} ${each.kind} ${each.source} ${each.state}`);

/** Code, details.refused and message of what is thrown. */
function refusal(act: () => unknown): { code: string; refused?: unknown; message: string } {
  try {
    act();
  } catch (error) {
    if (!HoldfastError.is(error)) throw error;
    const { refused } = Object(error.details) as { refused?: unknown };
    return { code: error.code, message: error.message, ...(refused === undefined ? {} : { refused }) };
  }
  throw new Error("must be refused");
}

describe("finding", () => {
  test("first wins: workspace, its skills, the user's, built-ins, code", () => {
    const builtin = join(base, "builtin");
    inWork("workflows/a.yaml", plan("a"));
    inWork("skills/a/workflow.yaml", plan("a", "", 2));
    inHome("workflows/a.yaml", plan("a", "", 3));
    inHome("skills/b/workflow.yaml", plan("b"));
    write(join(builtin, "b.yaml"), plan("b", "", 2));
    write(join(builtin, "c.yaml"), plan("c"));
    const code = { workflow_schema: 1, id: "c", revision: 9, steps: [], plan: {} };
    const catalog = open({ builtin, definitions: [code] });
    expect(brief(catalog)).toEqual([
      "a@1 plan workspace valid",
      "a@2 plan workspace shadowed",
      "a@3 plan user shadowed",
      "b@1 plan user valid",
      "b@2 plan builtin shadowed",
      "c@1 plan builtin valid",
      "c@9 plan code shadowed",
    ]);
    const [, second, third] = catalog.entries();
    expect(third?.diagnostics.at(-1)).toMatchObject({
      code: "shadowed",
      severity: "warning",
      message: "not used: .holdfast/workflows/a.yaml comes first (workspace before user)",
    });
    expect(second?.diagnostics.map((each) => each.code)).toContain("no_skill_file");
    expect(second?.tool_name).toBeUndefined();
    expect(catalog.entry("a")).toMatchObject({
      tool_name: "workflow__a",
      path: join(workspace, ".holdfast/workflows/a.yaml"),
    });
  });

  test("a broken file hides what it overrides and says so, whether or not it parses", () => {
    inHome("workflows/a.yaml", plan("a"));
    inHome("workflows/b.yaml", plan("b"));
    inHome("workflows/c.yaml", plan("c"));
    inWork("workflows/x.yaml", plan("a", "nonsense: 1\n"));
    inWork("workflows/y.yaml", `${plan("b")}\n  - [`);
    inWork("workflows/c.yaml", "a: [");
    const catalog = open();
    for (const id of ["a", "b", "c"]) {
      expect(catalog.entry(id)).toMatchObject({ state: "broken", source: "workspace" });
      expect(catalog.entry(id)?.diagnostics.at(-1)).toMatchObject({ code: "hides", severity: "warning" });
      expect(refusal(() => catalog.pin(id)).code).toBe("definition");
    }
    expect(catalog.entry("a")?.diagnostics[0]).toMatchObject({
      line: 4,
      column: 1,
      file: ".holdfast/workflows/x.yaml",
    });
  });

  test("two files of one folder with one id: the second is shadowed with a reason", () => {
    inWork("workflows/one.yaml", plan("a"));
    inWork("workflows/two.yml", plan("a", "", 2));
    const [first, second] = open().entries();
    expect([first?.revision, second?.state]).toEqual([1, "shadowed"]);
    expect(second?.diagnostics.at(-1)?.message).toBe(
      "not used: .holdfast/workflows/one.yaml has the same id; give one of them another",
    );
  });

  test("graphs and scripts are listed with a plain sentence, other files are nothing", () => {
    inWork("workflows/g.yaml", "workflow_source_version: 3\nworkflow_id: release\ntitle: R\n");
    inWork("workflows/h.toml", "workflow_source_version = 3\n");
    inWork("workflows/brief.lua", "return 1\n");
    inWork("workflows/sub/triage.ts", "throw new Error('never loaded')\n");
    inWork("workflows/no.yaml", "hello: 1\n");
    inWork("workflows/README.md", "# hi\n");
    inWork("workflows/plan.schema.json", "{}");
    inWork("workflows/types.d.ts", "export {}");
    const catalog = open();
    expect(brief(catalog)).toEqual([
      "brief@0 script workspace broken",
      "h@0 graph workspace broken",
      "no@0 plan workspace broken",
      "release@0 graph workspace broken",
      "triage@0 script workspace broken",
    ]);
    expect(catalog.entry("triage")?.diagnostics[0]?.message).toMatch(
      /^this is a script; this version of Holdfast runs plans only/,
    );
    expect(catalog.entry("no")?.diagnostics[0]).toMatchObject({ code: "no_marker", line: 1 });
  });

  test("skills: a workflow with its card, an instruction, and what is deeper is none of ours", () => {
    inWork("skills/review/SKILL.md", "---\nname: review\ndescription: Reviews\n---\n");
    inWork("skills/review/workflow.yaml", plan("code-review"));
    inWork("skills/review/scripts/helper.yaml", "x: [");
    inWork("skills/notes/SKILL.md", "---\nname: notes\ndescription: How to write notes\n---\n");
    inWork("skills/bad/SKILL.md", "# none\n");
    const catalog = open();
    expect(brief(catalog)).toEqual([
      "bad@0 instruction workspace broken",
      "code-review@1 plan workspace valid",
      "notes@1 instruction workspace valid",
    ]);
    expect(catalog.entry("code-review")).toMatchObject({ title: "review", description: "Reviews" });
    expect(catalog.diagnostics().every((each) => each.file.startsWith(".holdfast/skills/bad"))).toBe(true);
    expect(refusal(() => catalog.pin("notes"))).toMatchObject({ code: "preflight", refused: "kind" });
  });

  test("C38 a bomb in the folder is refused and the other plans still load", () => {
    inWork("workflows/bomb.yaml", "[".repeat(5_000));
    inWork("workflows/big.yaml", `a: "${"x".repeat(1_100_000)}"`);
    inWork("workflows/good.yaml", plan("good"));
    const catalog = open();
    expect(brief(catalog)).toEqual([
      "big@0 plan workspace broken",
      "bomb@0 plan workspace broken",
      "good@1 plan workspace valid",
    ]);
    expect(catalog.entry("big")?.diagnostics[0]?.code).toBe("too_large");
  });

  test("C39 links: inside they are followed, outside refused in the same words whether or not the end exists", () => {
    const outside = join(base, "work-evil");
    write(join(outside, "secret.yaml"), plan("secret"));
    write(join(workspace, "plans", "shared.yaml"), plan("shared"));
    const folder = join(workspace, ".holdfast", "workflows");
    mkdirSync(folder, { recursive: true });
    symlinkSync(join(workspace, "plans", "shared.yaml"), join(folder, "shared.yaml"));
    symlinkSync(join(outside, "secret.yaml"), join(folder, "leak.yaml"));
    symlinkSync(join(outside, "absent.yaml"), join(folder, "gone.yaml"));
    symlinkSync(join(folder, "leak.yaml"), join(folder, "chain.yaml"));
    symlinkSync(outside, join(folder, "tree"));
    symlinkSync(folder, join(folder, "again"));
    const catalog = open();
    expect(brief(catalog)).toEqual([
      "chain@0 plan workspace broken",
      "gone@0 plan workspace broken",
      "leak@0 plan workspace broken",
      "shared@1 plan workspace valid",
    ]);
    const words = ["leak", "gone", "chain"].map((id) => catalog.entry(id)?.diagnostics[0]?.message);
    expect(new Set(words).size).toBe(1);
    expect(
      catalog
        .diagnostics()
        .filter((each) => each.file.endsWith("/tree"))
        .map((each) => each.code),
    ).toEqual(["link_outside"]);
  });

  test("C39 a folder of workflows that is itself a link out of the workspace holds nothing", () => {
    write(join(base, "elsewhere", "a.yaml"), plan("a"));
    mkdirSync(join(workspace, ".holdfast"));
    symlinkSync(join(base, "elsewhere"), join(workspace, ".holdfast", "workflows"));
    const catalog = open();
    expect(catalog.entries()).toEqual([]);
    expect(catalog.diagnostics().map((each) => each.code)).toEqual(["link_outside"]);
  });

  test("a pipe, a folder with a definition's name and bad UTF-8 are broken entries, never a wait", () => {
    inWork("workflows/latin.yaml", "");
    writeFileSync(join(workspace, ".holdfast/workflows/latin.yaml"), Buffer.from([0x69, 0x64, 0x3a, 0xe9]));
    execFileSync("mkfifo", [join(workspace, ".holdfast/workflows/pipe.yaml")]);
    mkdirSync(join(workspace, ".holdfast/workflows/folder.yaml"));
    const catalog = open();
    expect(catalog.entries().map((each) => [each.workflow_id, each.diagnostics[0]?.code])).toEqual([
      ["latin", "not_utf8"],
      ["pipe", "not_a_file"],
    ]);
  });

  test("C24 ids of Object.prototype are ids", () => {
    inWork("workflows/a.yaml", plan("constructor"));
    inWork("workflows/b.yaml", plan("__proto__"));
    const catalog = open();
    expect(catalog.entry("toString")).toBeUndefined();
    expect(Object.keys(catalog.pin("__proto__").bundle.definitions)).toEqual(["__proto__@1"]);
    expect(catalog.entry("constructor")?.state).toBe("valid");
  });

  test("no folders at all: an empty catalog without a fault", () => {
    rmSync(home, { recursive: true });
    const catalog = open();
    expect([catalog.entries(), catalog.diagnostics()]).toEqual([[], []]);
    expect(refusal(() => catalog.pin("x")).message).toMatch(/holdfast init/);
  });
});

describe("publications", () => {
  const settle = () => {
    nowMs += 10_000;
  };

  test("RP-9 a new number only when something changed, and a run keeps what it pinned", () => {
    const path = inWork("workflows/a.yaml", plan("a"));
    const catalog = open();
    const pinned = catalog.pin("a");
    expect(pinned.bundle.publication_revision).toBe(1);
    settle();
    expect(catalog.reload()).toMatchObject({ changed: false, publication_revision: 1 });
    const before = structuredClone(pinned.bundle);
    writeFileSync(path, plan("a", "", 2));
    expect(catalog.entry("a")?.revision).toBe(1);
    expect(catalog.reload()).toMatchObject({ changed: true, publication_revision: 2, failed: false });
    expect(catalog.entry("a")?.revision).toBe(2);
    expect(pinned.bundle).toEqual(before);
    rmSync(path);
    expect(catalog.reload()).toMatchObject({ changed: true, publication_revision: 3 });
    expect(catalog.entries()).toEqual([]);
  });

  test("pinning looks at the disk first, and the same publication gives the same bundle object", () => {
    inWork("workflows/a.yaml", plan("a"));
    const catalog = open();
    inWork("workflows/b.yaml", plan("b"));
    expect(catalog.pin("b").bundle.publication_revision).toBe(2);
    expect(catalog.pin("a").bundle).toBe(catalog.pin("a").bundle);
    expect(catalog.pin("a", { limits: UNTRUSTED_BUNDLE_LIMITS }).bundle).not.toBe(catalog.pin("a").bundle);
  });
});

describe("references", () => {
  test("id, id@revision, hash and path", () => {
    const path = inWork("workflows/a.yaml", plan("a", "", 3));
    write(join(workspace, "other.yaml"), plan("elsewhere"));
    inWork("skills/s/workflow.yaml", plan("in-skill"));
    const catalog = open();
    const hash = catalog.entry("a")?.definition_hash as string;
    expect(hash).toBe(hashJson(catalog.resolve("a").definition as never));
    expect(catalog.resolve("a@3").entry.revision).toBe(3);
    expect(catalog.resolve(`hash:${hash}`).entry.workflow_id).toBe("a");
    expect(catalog.resolve(path).entry).toMatchObject({ workflow_id: "a", path, definition_hash: hash });
    expect(catalog.resolve("other.yaml").entry.workflow_id).toBe("elsewhere");
    expect(catalog.resolve("./.holdfast/skills/s").entry.workflow_id).toBe("in-skill");
    expect(catalog.resolve("a").source).toBe(readFileSync(path, "utf8"));
    expect([catalog.entryByRevision("a", 3)?.revision, catalog.entryByRevision("a", 1)]).toEqual([3, undefined]);
    expect(catalog.byHash(hash)?.workflow_id).toBe("a");
  });

  test.each([
    ["open-marker", "not_found", /did you mean "open-markers"/],
    ["open-markers@2", "not_found", /at revision 1; use that one/],
    ["zzz", "not_found", /holdfast workflows/],
    ["./nothing.yaml", "not_found", /does not exist/],
    ["nothing.lua", "not_found", /does not exist/],
    [".holdfast/workflows", "usage", /is not a regular file/],
    ["hash:12", "usage", /64 hex digits/],
    [`hash:${"0".repeat(64)}`, "not_found", /none in the catalog/],
    ["", "usage", /give an id/],
    ["a\0b", "usage", /give an id/],
  ])("%j is refused with a way on", (ref, code, message) => {
    inWork("workflows/m.yaml", plan("open-markers"));
    const found = refusal(() => open().pin(ref));
    expect(found.code).toBe(code);
    expect(found.message).toMatch(message);
  });
});

describe("pinning", () => {
  test("RP-9 exactly the reachable closure, with the root's policy and without headers", () => {
    inWork(
      "workflows/root.yaml",
      nesting("root", "mid", "leaf").replace(
        "steps:",
        "title: T\ninvocation_policy: {explicit: true, automatic: true}\nsteps:",
      ),
    );
    inWork("workflows/mid.yaml", nesting("mid", "leaf"));
    inWork("workflows/leaf.yaml", plan("leaf", "title: Leaf\n"));
    inWork("workflows/other.yaml", plan("other"));
    const { bundle, header } = open().pin("root");
    expect(Object.keys(bundle.definitions).sort()).toEqual(["leaf@1", "mid@1", "root@1"]);
    expect(bundle).toMatchObject({ root_id: "root", root_revision: 1, root_invocation_policy: { automatic: true } });
    expect(header.title).toBe("T");
    expect(JSON.stringify(bundle.definitions)).not.toContain("title");
  });

  test("RP-8 a nested workflow must win its id at exactly that revision", () => {
    inWork("workflows/root.yaml", nesting("root", "leaf@2"));
    inWork("workflows/absent.yaml", nesting("absent", "nobody"));
    inWork("workflows/bad.yaml", nesting("bad", "wrong"));
    inWork("workflows/skill.yaml", nesting("skill", "notes"));
    inWork("skills/notes/SKILL.md", "---\nname: notes\ndescription: n\n---\n");
    inWork("workflows/wrong.yaml", plan("wrong", "x: 1\n"));
    inWork("workflows/leaf.yaml", plan("leaf"));
    inHome("workflows/leaf.yaml", plan("leaf", "", 2));
    const catalog = open();
    for (const [id, message] of [
      ["root", /"leaf@2" is at revision 1 in the catalog/],
      ["absent", /"nobody@1" is not in the catalog/],
      ["bad", /"wrong@1" is broken/],
      ["skill", /"notes@1" is an instruction/],
    ] as const) {
      const found = refusal(() => catalog.pin(id));
      expect(found).toMatchObject({ code: "preflight", refused: "bundle" });
      expect(found.message).toMatch(message);
    }
  });

  test("a file outside the folders pins itself and finds what it nests in the catalog", () => {
    write(join(workspace, "mine.yaml"), nesting("leaf", "mid"));
    inWork("workflows/mid.yaml", nesting("mid", "base"));
    inWork("workflows/base.yaml", plan("base"));
    const { bundle, entry } = open().pin("./mine.yaml");
    expect(Object.keys(bundle.definitions).sort()).toEqual(["base@1", "leaf@1", "mid@1"]);
    expect(entry).toMatchObject({ source: "workspace", workflow_id: "leaf" });
  });

  test("SC-20 bundle limits are inclusive: 32 definitions pass, 33 are refused", () => {
    const names = Array.from({ length: 32 }, (_, i) => `w${i}`);
    for (const name of names) inWork(`workflows/${name}.yaml`, plan(name));
    inWork("workflows/thirty-two.yaml", nesting("thirty-two", ...names.slice(0, 31)));
    inWork("workflows/thirty-three.yaml", nesting("thirty-three", ...names));
    const catalog = open();
    const limits = UNTRUSTED_BUNDLE_LIMITS;
    expect(Object.keys(catalog.pin("thirty-two", { limits }).bundle.definitions)).toHaveLength(32);
    expect(refusal(() => catalog.pin("thirty-three", { limits }))).toMatchObject({
      code: "preflight",
      refused: "bundle",
    });
    expect(Object.keys(catalog.pin("thirty-three").bundle.definitions)).toHaveLength(33);
  });

  test("a circle of workflows ends", () => {
    inWork("workflows/a.yaml", nesting("a", "b"));
    inWork("workflows/b.yaml", nesting("b", "a"));
    const catalog = open();
    expect(Object.keys(catalog.pin("a").bundle.definitions).sort()).toEqual(["a@1", "b@1"]);
    expect(catalog.checkFiles().map((each) => each.code)).toEqual(["nested", "nested"]);
  });

  test("RP-7 credential material in a definition is refused in preflight", () => {
    inWork("workflows/a.yaml", plan("a").replace('pattern: "*"', 'pattern: "ghp_0123456789abcdef0123"'));
    expect(refusal(() => open().pin("a"))).toMatchObject({ code: "preflight", refused: "bundle" });
  });

  test("definitions given in code run, and what is no JSON is told with its place", () => {
    const steps = [{ id: "look", type: "tool", tool: "Glob", args: { pattern: "*" } }];
    const good = { workflow_schema: 1, id: "coded", revision: 1, steps, plan: { type: "step", step: "look" } };
    const catalog = open({ definitions: [good, { ...good, id: "odd", when: new Date(0) }] });
    expect(catalog.pin("coded").entry).toMatchObject({ source: "code", state: "valid" });
    expect(catalog.entry("odd")?.diagnostics[0]?.message).toMatch(/\$\.when: a Date instance/);
  });
});

describe("checking", () => {
  test("the whole catalog, with nested faults at their places", () => {
    inWork("workflows/a.yaml", nesting("a", "nobody"));
    inWork("workflows/b.yaml", plan("b", "stps: 1\n"));
    const found = open().checkFiles();
    expect(found.map((each) => `${each.file}:${each.line}:${each.column} ${each.code}`)).toEqual([
      ".holdfast/workflows/b.yaml:4:1 unknown_key",
      ".holdfast/workflows/a.yaml:5:43 nested",
    ]);
  });

  test("files given may nest each other, folders are looked into, and missing ones are told", () => {
    write(join(workspace, "plans", "one.yaml"), nesting("one", "two"));
    write(join(workspace, "plans", "two.yaml"), plan("two"));
    const catalog = open();
    expect(catalog.checkFiles(["plans/one.yaml", "plans/two.yaml"])).toEqual([]);
    expect(catalog.checkFiles(["plans"])).toEqual([]);
    expect(catalog.checkFiles(["plans/one.yaml"]).map((each) => [each.file, each.code])).toEqual([
      ["plans/one.yaml", "nested"],
    ]);
    expect(catalog.checkFiles(["no.yaml", "plans/x.txt"]).map((each) => each.message)).toEqual([
      "the file does not exist",
      "the file does not exist",
    ]);
    mkdirSync(join(workspace, "empty"));
    expect(catalog.checkFiles(["empty"]).map((each) => each.code)).toEqual(["empty"]);
  });

  test("a moved file is judged where it is", () => {
    const from = inWork("workflows/a.yaml", plan("a", "x: 1\n"));
    const catalog = open();
    renameSync(from, join(workspace, ".holdfast/workflows/b.yaml"));
    catalog.reload();
    expect(catalog.entry("a")?.diagnostics[0]?.file).toBe(".holdfast/workflows/b.yaml");
  });
});
