/** The configuration file: one file, closed keys, places in messages, nothing of untrusted workspaces. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { HoldfastError } from "../domain/errors.ts";
import type { Json } from "../domain/json.ts";
import { configEditorSchema, loadConfig, type ReadDocument } from "./load.ts";
import { openWorkspaceFolder } from "./workspace.ts";

let root: string;

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), "holdfast config ")));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** JSON in place of the catalog's reader: adapters do not know each other. Keys are found by their text. */
const readDocument: ReadDocument = (text, file) => {
  try {
    const value = JSON.parse(text) as Json;
    return {
      value,
      locate: (path) => ({ line: text.slice(0, text.indexOf(`"${path.at(-1)}"`)).split("\n").length, column: 1 }),
    };
  } catch {
    return {
      diagnostics: [{ file, line: 3, column: 2, code: "syntax", message: "this is no JSON", severity: "error" }],
    };
  }
};

function load(files: { [name: string]: string }, more: { trusted?: boolean; packageEntry?: string } = {}) {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(root, name, ".."), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return loadConfig(openWorkspaceFolder(root), { trusted: true, readDocument, ...more });
}

async function refusal(loading: Promise<unknown>): Promise<{ message: string; places: string[]; hints: string[] }> {
  const error = await loading.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!HoldfastError.is(error)) throw error ?? new Error("must be refused");
  expect(error.code).toBe("usage");
  const { diagnostics } = error.details as unknown as {
    diagnostics: { file: string; line: number; message: string; hint?: string }[];
  };
  return {
    message: error.message,
    places: diagnostics.map((each) => `${each.file}:${each.line}`),
    hints: diagnostics.flatMap((each) => each.hint ?? []),
  };
}

describe("which file", () => {
  test("none: an empty configuration", async () => {
    expect(await load({})).toEqual({ config: {}, applied: false, diagnostics: [] });
  });

  test("several: an error that names them", async () => {
    const found = await refusal(load({ "holdfast.config.ts": "", "holdfast.config.json": "{}" }));
    expect(found.message).toBe(
      "Cannot choose a configuration: the workspace has holdfast.config.json and holdfast.config.ts; keep one of them",
    );
    expect(found.places).toEqual(["holdfast.config.json:1", "holdfast.config.ts:1"]);
  });

  test("untrusted: nothing of it is read, of data files neither, and it is told", async () => {
    const code = `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(join(root, "ran"))}, ""); export default {}`;
    const loaded = await load({ "holdfast.config.ts": code, "holdfast.config.json": "{" }, { trusted: false });
    expect(loaded).toMatchObject({ config: {}, applied: false, file: "holdfast.config.json" });
    expect(loaded.diagnostics.map((each) => [each.file, each.code, each.severity])).toEqual([
      ["holdfast.config.json", "untrusted", "warning"],
      ["holdfast.config.ts", "untrusted", "warning"],
    ]);
    expect(existsSync(join(root, "ran"))).toBe(false);
  });
});

describe("data", () => {
  test("is checked and applied", async () => {
    const config = {
      permissions: { read: "allow", "deploy:prod": "ask" },
      limits: { steps: 10, lease_ms: 1000 },
      recovery: "manual",
      secrets: { env: { key: "API_KEY" } },
    };
    expect(await load({ "holdfast.config.json": JSON.stringify(config) })).toMatchObject({ config, applied: true });
  });

  test.each([
    [{ permisions: {} }, "`permisions` is no key of the configuration", 'did you mean "permissions"?'],
    [{ permissions: { write: "alow" } }, "`permissions.write` must be allow, ask, deny", 'did you mean "allow"?'],
    [{ permissions: "allow" }, "`permissions` must be a mapping"],
    [{ limits: { step: 1 } }, "`limits.step` is no key of the configuration", 'did you mean "steps"?'],
    [{ limits: { steps: 0 } }, "`limits.steps` must be at least 1"],
    [{ limits: { steps: 1.5 } }, "`limits.steps` must be a whole number"],
    [{ store: "mysql://x" }, "`store` must be sqlite:PATH or postgres://…"],
    [
      { secrets: { env: { key: "sk-123 x" } } },
      "`secrets.env.key` must name an environment variable, such as API_KEY; the value itself never stands here",
    ],
    [{ secrets: { key: "value" } }, "`secrets.key` is no key of the configuration", "known keys: env"],
    [{ tools: [{ name: "x" }] }, "`tools.0` is no tool: make it with defineTool({…}) in a .ts or .js configuration"],
    [{ durability: "none" }, "`durability` must be standard, strict"],
    [{ approvals: { mcp: true } }, "`approvals.mcp` must be elicit"],
    [[], "the configuration must be a mapping"],
  ])("%j is refused", async (config, message, hint?: string) => {
    const found = await refusal(load({ "holdfast.config.json": JSON.stringify(config, null, 1) }));
    expect(found.message).toContain(message);
    if (hint !== undefined) expect(found.hints).toContain(hint);
  });

  test("faults carry the place that the reader tells, all at once", async () => {
    const found = await refusal(load({ "holdfast.config.json": '{\n"stor": 1,\n"recovery":\n"x"}' }));
    expect(found.places.sort()).toEqual(["holdfast.config.json:2", "holdfast.config.json:3"]);
    expect((await refusal(load({ "holdfast.config.json": "{" }))).message).toMatch(
      /^Cannot read holdfast.config.json:3: /,
    );
  });
});

describe("code", () => {
  const stub = () => {
    const entry = join(root, "package", "index.mjs");
    mkdirSync(join(root, "package"), { recursive: true });
    writeFileSync(entry, "export const defineTool = (t) => ({ ...t, made: true });\n");
    writeFileSync(join(root, "package", "testing.mjs"), "export const name = 'testing';\n");
    return entry;
  };

  test("TypeScript with helpers, the running package, its subpath and import.meta", async () => {
    const text = `
      import { readFileSync } from "node:fs";
      import { defineTool } from "holdfast";
      import { name } from "holdfast/testing";
      import { limit } from "./lib/limit.ts";
      interface Unused { readonly a: string }
      const note: string = readFileSync(new URL("./note.txt", import.meta.url), "utf8");
      export default { tools: [defineTool({ name: "t", description: note + name, run: () => null })], limits: { steps: limit } } satisfies object;
    `;
    const helper =
      "import { dirname } from 'node:path';\nexport const limit: number = import.meta.dirname.length - import.meta.dirname.length + 5;\n";
    const loaded = await load(
      { "holdfast.config.ts": text, "lib/limit.ts": helper, "note.txt": "a note " },
      { packageEntry: stub() },
    );
    expect(loaded.config).toMatchObject({
      tools: [{ name: "t", description: "a note testing", made: true }],
      limits: { steps: 5 },
    });
    expect(readdirSync(join(root, ".holdfast/state/cache"))).toEqual([]);
  });

  test("packages of the workspace are found", async () => {
    const loaded = await load({
      "node_modules/dep/package.json": '{"name": "dep", "type": "module", "exports": "./i.js"}',
      "node_modules/dep/i.js": "export const steps = 3;",
      "holdfast.config.mjs": 'import { steps } from "dep"; export default { limits: { steps } };',
    });
    expect(loaded.config.limits).toEqual({ steps: 3 });
  });

  test("is evaluated anew at each load", async () => {
    expect((await load({ "holdfast.config.js": "export default { recovery: 'auto' }" })).config.recovery).toBe("auto");
    expect((await load({ "holdfast.config.js": "export default { recovery: 'manual' }" })).config.recovery).toBe(
      "manual",
    );
  });

  test.each([
    ["a syntax error", "const a = 1;\nconst b = ;\nexport default {};\n", "holdfast.config.ts:2", /Unexpected ";"/],
    [
      "a throw",
      "const fail = (): never => {\n\n  throw new Error('no key');\n};\nfail();\nexport default {};\n",
      "holdfast.config.ts:3",
      /no key/,
    ],
    [
      "a missing package",
      "import x from 'no-such-package';\nexport default { x };\n",
      "holdfast.config.ts:1",
      /'no-such-package' imported from holdfast.config.ts/,
    ],
    ["a missing import", "import x from './nothing.ts';\nexport default { x };\n", "holdfast.config.ts:1", /nothing/],
    ["no default export", "export const a = 1;\n", "holdfast.config.ts:1", /there is no default export/],
    [
      "an unknown key",
      "export default {\n  recovery: 'auto',\n  limitss: {},\n};\n",
      "holdfast.config.ts:3",
      /did you mean "limits"/,
    ],
    [
      "a bad value deep inside",
      "const a = { steps: 1 };\nexport default {\n  limits: {\n    steps: 0,\n  },\n};\n",
      "holdfast.config.ts:4",
      /at least 1/,
    ],
    ["a function", "export default () => ({});\n", "holdfast.config.ts:1", /must be a mapping/],
  ])("%s is refused with file and line", async (_, text, place, message) => {
    const found = await refusal(load({ "holdfast.config.ts": text }));
    expect(found.places).toEqual([place]);
    expect(found.message).toMatch(message);
    expect(found.message).toContain(place);
  });

  test("a fault in a helper names the helper", async () => {
    const found = await refusal(
      load({
        "holdfast.config.ts": "import './lib/a.ts';\nexport default {};\n",
        "lib/a.ts": "\nthrow new Error('from a');\n",
      }),
    );
    expect(found.places).toEqual(["lib/a.ts:2"]);
  });
});

test("the editor schema is JSON Schema 2020-12 with a description for every key", async () => {
  const schema = await configEditorSchema();
  const validate = new Ajv2020({ strict: false }).compile(schema);
  expect(validate({ permissions: { read: "allow" }, limits: { steps: 1 }, durability: "strict" })).toBe(true);
  expect(validate({ permisions: {} })).toBe(false);
  expect(validate({ limits: { stop: 1 } })).toBe(false);
  for (const [key, value] of Object.entries(schema.properties as object))
    expect([key, typeof (value as { description?: string }).description]).toEqual([key, "string"]);
});
