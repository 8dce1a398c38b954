// The documentation against the code: plans compile, programs have types and run, command lines parse, and the tables of
// keys, routes and bounds name what there is.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundle } from "../../dev/bundle.mjs";
import { ENTRIES } from "../../dev/cli-bundle.mjs";
import { openCatalog, readData } from "../../src/catalog/index.ts";
import { parseCommandLine } from "../../src/cli/program.ts";
import { CONFIG_KEYS, checkConfig, configSchema } from "../../src/config/schema.ts";
import { ERRORS } from "../../src/domain/errors.ts";
import {
  BUDGET_SHAPE,
  PLAN_SHAPES,
  POLICY_SHAPE,
  REFERENCE_SHAPES,
  ROOT_SHAPE,
  type Shape,
  STEP_COMMON,
  STEP_SHAPES,
} from "../../src/domain/plan/shape.ts";
import { PREDICATE_OPERATIONS } from "../../src/domain/predicate.ts";
import { UNTRUSTED_CEILINGS } from "../../src/domain/run.ts";
import { KEYWORD_NAMES } from "../../src/domain/schema/keywords.ts";
import { ROUTES } from "../../src/server/resources/index.ts";
import { RUN, SESSION } from "../../src/server/routes.ts";
import * as bounds from "../../src/tools/files/limits.ts";
import { createToolRegistry, fileTools } from "../../src/tools/index.ts";
import { files, ROOT, read } from "../tidy/repository.ts";

const documents = [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  ...files("docs").filter((file) => file.endsWith(".md")),
];
const tools = createToolRegistry([fileTools()]);
const catalog = openCatalog({ env: { tool: (name) => tools.describe(name), maxConcurrency: 1_024 } });

interface Block {
  readonly file: string;
  /** Of its first line of text, from 1. */
  readonly line: number;
  readonly text: string;
}

/** The fenced blocks of one language in every document. */
function blocks(language: string): Block[] {
  return documents.flatMap((file) => {
    const text = read(file);
    return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "gm"))].map((found) => ({
      file,
      line: text.slice(0, found.index).split("\n").length + 1,
      text: found[1] ?? "",
    }));
  });
}

const at = ({ file, line }: Block): string => `${file}:${line}`;

describe("plans and data", () => {
  const yaml = blocks("yaml");
  const plans = yaml.filter(({ text }) => /^workflow_schema:/m.test(text));

  test("every plan compiles", () => {
    expect(catalog.checkText("workflow_schema: 1\nid: x\n", "x.yaml")).not.toEqual([]);
    expect(plans.length).toBeGreaterThan(6);
    const found = plans.flatMap((block) =>
      catalog.checkText(block.text, "plan.yaml").map(({ line, message }) => `${at(block)} line ${line}: ${message}`),
    );
    expect(found).toEqual([]);
  });

  test("every other YAML is a configuration", () => {
    const others = yaml.filter((block) => !plans.includes(block));
    expect(others.length).toBeGreaterThan(3);
    const found = others.flatMap((block) => {
      const document = readData(block.text, "holdfast.config.yaml");
      if (document.diagnostics !== undefined)
        return document.diagnostics.map(({ message }) => `${at(block)}: ${message}`);
      return (checkConfig(document.value).faults ?? []).map(({ message }) => `${at(block)}: ${message}`);
    });
    expect(found).toEqual([]);
  });

  test("every JSON is JSON", () => {
    for (const block of blocks("json")) expect(() => JSON.parse(block.text) as unknown, at(block)).not.toThrow();
  });
});

/** A word of a shell, or where the command ends. Only what documents use: quotes, comments, pipes, `$(…)`. */
const WORD = /\s*(?:(#.*|[|;>)]|2>|&&)|((?:'[^']*'|"[^"]*"|[^\s'"|;>)#]|(?<=\S)#)+))/y;

function wordsOf(command: string): string[] {
  const words: string[] = [];
  WORD.lastIndex = 0;
  for (let found = WORD.exec(command); found?.[2] !== undefined; found = WORD.exec(command))
    words.push(found[2].replaceAll(/'([^']*)'|"([^"]*)"/g, "$1$2"));
  return words;
}

/** `holdfast …` in blocks of shell lines and in running text. */
function commandLines(file: string): string[] {
  const text = read(file);
  const shell = [...text.matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(([, lines = ""]) => lines.split("\n"));
  const inline = [...text.replace(/^```[\s\S]*?^```/gm, "").matchAll(/`([^`\n]+)`/g)].map(([, code = ""]) => code);
  const start = /(?:^|[\s/(])holdfast(?= [a-z-])/;
  return [...shell, ...inline].flatMap((line) => {
    const found = start.exec(line);
    return found === null ? [] : [line.slice(found.index + found[0].length + 1)];
  });
}

describe("command lines", () => {
  const parse = (line: string): string | undefined => {
    try {
      parseCommandLine(wordsOf(line), {}, { program: "holdfast", width: 100, color: false });
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };

  test("every one has a command, arguments and flags that there are", () => {
    expect(wordsOf(`run x --input pattern='A|B' --json   # why`)).toEqual([
      "run",
      "x",
      "--input",
      "pattern=A|B",
      "--json",
    ]);
    expect(
      [parse("fly"), parse("run x --fly"), parse("why"), parse("why last")].map((fault) => fault !== undefined),
    ).toEqual([true, true, true, false]);
    const all = documents.flatMap((file) => commandLines(file).map((line) => ({ file, line })));
    expect(all.length).toBeGreaterThan(50);
    const wrong = all.flatMap(({ file, line }) => {
      const fault = parse(line);
      return fault === undefined ? [] : [`${file}: holdfast ${line}: ${fault}`];
    });
    expect(wrong).toEqual([]);
  });
});

describe("programs", () => {
  const parent = mkdtempSync(path.join(os.tmpdir(), "docs-"));
  const programs = blocks("ts");
  const readme = programs.filter(({ file }) => file === "README.md");
  /** A server or a provider that only the reader has. */
  const runnable = [...readme, ...programs.filter(({ file }) => file === "docs/typescript.md")].filter(
    ({ text }) => !text.includes("holdfast/client"),
  );

  /** With README's workflows; each program has one of its own, and so a store of its own. */
  function workspace(folder: string): string {
    mkdirSync(path.join(folder, ".holdfast/workflows"), { recursive: true });
    mkdirSync(path.join(folder, "src"));
    for (const { text, file } of blocks("yaml")) {
      const name = `${/^id: (.*)$/m.exec(text)?.[1]}.yaml`;
      if (file === "README.md") writeFileSync(path.join(folder, ".holdfast/workflows", name), text);
    }
    return folder;
  }

  beforeAll(async () => {
    mkdirSync(path.join(parent, "node_modules"));
    for (const name of ["zod", "@types"])
      symlinkSync(path.join(ROOT, "node_modules", name), path.join(parent, "node_modules", name), "junction");
    // The package as it would be installed, made of the checkout's own bundle.
    const home = path.join(parent, "node_modules/holdfast");
    mkdirSync(home);
    symlinkSync(await bundle("holdfast", ENTRIES), path.join(home, "dist"), "junction");
    writeFileSync(path.join(home, "package.json"), read("package.json"));
    writeFileSync(path.join(parent, "package.json"), '{"type": "module"}');
  });

  afterAll(() => rmSync(parent, { recursive: true, force: true }));

  test("every one has types that a strict project accepts", () => {
    const names = programs.map(({ text }, index) => {
      const name = path.join(parent, `example-${index}.mts`);
      writeFileSync(name, text);
      return name;
    });
    const entry = (file: string): string[] => [path.join(ROOT, file)];
    const program = ts.createProgram(names, {
      target: ts.ScriptTarget.ES2023,
      lib: ["lib.es2023.d.ts", "lib.es2024.string.d.ts", "lib.esnext.disposable.d.ts"],
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      types: ["node"],
      typeRoots: [path.join(ROOT, "node_modules/@types")],
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
      skipLibCheck: true,
      allowImportingTsExtensions: true,
      paths: {
        holdfast: entry("src/index.ts"),
        "holdfast/client": entry("src/client/index.ts"),
        "holdfast/testing": entry("src/testing/index.ts"),
      },
    });
    // Only the examples: the sources have a check of their own.
    const faults = names.flatMap((name, index) => {
      const source = program.getSourceFile(name);
      return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
        ({ messageText }) => `${at(programs[index] as Block)}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`,
      );
    });
    expect(faults).toEqual([]);
  });

  test("what they import is exported by the package", () => {
    const { exports } = JSON.parse(read("package.json")) as { exports: { [name: string]: unknown } };
    const imported = programs.flatMap(({ text }) =>
      [...text.matchAll(/from "(holdfast[^"]*)"/g)].map(([, name = ""]) => name),
    );
    const told = documents.flatMap((file) =>
      [...read(file).matchAll(/`(holdfast\/[a-z]+)`/g)].map(([, name = ""]) => name),
    );
    const names = [...new Set([...imported, ...told])].map((name) => name.replace(/^holdfast/, "."));
    expect(names.filter((name) => !Object.hasOwn(exports, name))).toEqual([]);
  });

  test("those of README and the TypeScript page run", async () => {
    const run = promisify(execFile);
    const outputs = await Promise.all(
      runnable.map(async (block, index) => {
        const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
        const file = path.join(parent, `run-${index}.mjs`);
        const text = ts.transpileModule(block.text, { compilerOptions: options }).outputText;
        writeFileSync(file, text);
        const folder = workspace(path.join(parent, `work-${index}`));
        const env = { ...process.env, HOLDFAST_HOME: path.join(parent, "home"), HOLDFAST_WORKSPACE: folder };
        const { stdout } = await run(process.execPath, [file], { cwd: folder, env }).catch(
          (error: { stderr: string }) => {
            throw new Error(`${at(block)}: ${error.stderr}`);
          },
        );
        return stdout;
      }),
    );
    expect(outputs.length).toBeGreaterThan(4);
    expect(outputs[0]).toMatch(/^succeeded \{ receipt: 'A-1-[0-9a-f]{8}' \}/);
    expect(outputs[readme.length]).toBe("succeeded { text: 'Hello, Ada' }\n");
  });
});

/** Those of the names that a page does not have in code. */
function untold(page: string, names: Iterable<string>): string[] {
  const code = [...read(page).matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text).join("\n");
  return [...new Set(names)].filter(
    (name) => !new RegExp(`(?<![\\w-])${name.replaceAll("$", "\\$")}(?![\\w-])`).test(code),
  );
}

describe("tables", () => {
  const keys = (...shapes: readonly Shape[]): string[] => shapes.flatMap((shape) => Object.keys(shape));

  test("plans.md names every key, type, operation and keyword", () => {
    const shapes = [
      ROOT_SHAPE,
      BUDGET_SHAPE,
      POLICY_SHAPE,
      STEP_COMMON,
      ...[STEP_SHAPES, PLAN_SHAPES, REFERENCE_SHAPES].flatMap((set) => Object.values(set)),
    ];
    const types = [STEP_SHAPES, PLAN_SHAPES, REFERENCE_SHAPES, PREDICATE_OPERATIONS].flatMap((set) => Object.keys(set));
    expect(untold("docs/plans.md", ["no_such_key"])).toEqual(["no_such_key"]);
    expect(untold("docs/plans.md", [...keys(...shapes), ...types, ...KEYWORD_NAMES])).toEqual([]);
  });

  test("plans.md states the defaults of budgets and the ceilings", () => {
    const page = read("docs/plans.md");
    const row = (key: string): string[] =>
      page.split("\n").filter((line) => line.startsWith("| `") && line.includes(`\`${key}\``));
    for (const key of [
      "max_concurrency",
      "max_steps",
      "max_agents",
      "max_retries",
      "max_nesting_depth",
      "wall_time_ms",
    ] as const) {
      const [fill, ceiling] = [BUDGET_SHAPE[key]?.fill, key === "wall_time_ms" ? "1 hour" : UNTRUSTED_CEILINGS[key]];
      expect(
        row(key).some((line) => line.split("|")[2]?.trim().startsWith(Number(fill).toLocaleString("en-US"))),
        key,
      ).toBe(true);
      expect(
        row(key).some((line) => line.split("|")[3]?.trim() === String(ceiling)),
        key,
      ).toBe(true);
    }
    expect(UNTRUSTED_CEILINGS.wall_time_ms).toBe(3_600_000);
  });

  test("configuration.md names every key", () => {
    const inner = ["limits", "notify"].flatMap((key) => {
      const schema = configSchema.shape[key as "limits" | "notify"];
      return Object.keys(schema.unwrap().shape);
    });
    expect(untold("docs/configuration.md", [...CONFIG_KEYS, ...inner])).toEqual([]);
  });

  test("tools.md names the file tools, their arguments and their bounds", () => {
    const told = tools
      .list()
      .flatMap(({ name, input_schema, output_schema }) => [
        name,
        ...Object.keys(input_schema.properties as object),
        ...Object.keys((output_schema?.properties ?? {}) as object),
      ]);
    expect(untold("docs/tools.md", told)).toEqual([]);
    const page = read("docs/tools.md");
    const {
      MAX_PATH,
      MAX_CONTENT_CHARS,
      MAX_ENTRIES,
      MAX_NAMES,
      DEFAULT_FILES,
      MAX_FILES,
      MAX_WALKED,
      DEFAULT_MATCHES,
      MAX_MATCHES,
      MAX_LINE_SEARCHED,
      MAX_LINE_SHOWN,
    } = bounds;
    for (const bound of [
      MAX_PATH,
      MAX_CONTENT_CHARS,
      MAX_ENTRIES,
      MAX_NAMES,
      DEFAULT_FILES,
      MAX_FILES,
      MAX_WALKED,
      DEFAULT_MATCHES,
      MAX_MATCHES,
      MAX_LINE_SEARCHED,
      MAX_LINE_SHOWN,
    ])
      expect(page).toContain(bound.toLocaleString("en-US"));
  });

  test("server.md names every route and every code, and no other route", () => {
    const page = read("docs/server.md");
    const told = [...page.matchAll(/`(GET|POST|PATCH|DELETE) ((?:S|R|\/)[^\s`]*)`/g)].map(
      ([, method, address = ""]) => `${method} ${address.replace(/^R(?=\/|$)/, RUN).replace(/^S(?=\/|$)/, SESSION)}`,
    );
    const there = [
      ...ROUTES.map(({ method, path: address }) => `${method.toUpperCase()} ${address}`),
      "GET /openapi.json",
      "POST /mcp",
    ];
    expect([...new Set(told)].sort()).toEqual([...new Set(there)].sort());
    const codes = Object.entries(ERRORS).flatMap(([code, row]) => ("http" in row ? [code] : []));
    expect(untold("docs/server.md", codes)).toEqual([]);
  });
});

describe("links", () => {
  /** As GitHub makes them. */
  const anchors = (file: string): string[] =>
    [
      ...read(file)
        .replace(/^```[\s\S]*?^```/gm, "")
        .matchAll(/^#+ (.*)$/gm),
    ].map(([, heading = ""]) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, "")
        .replaceAll(" ", "-"),
    );

  test("lead to files and headings that there are", () => {
    const broken = documents.flatMap((file) =>
      [
        ...read(file)
          .replace(/^```[\s\S]*?^```/gm, "")
          .matchAll(/\]\(([^)\s]+)\)/g),
      ].flatMap(([, link = ""]) => {
        if (/^https?:/.test(link)) return [];
        const [name = "", anchor] = link.split("#");
        const target = name === "" ? file : path.posix.join(path.posix.dirname(file), name);
        if (!existsSync(path.join(ROOT, target))) return [`${file}: ${link}`];
        return anchor === undefined || anchors(target).includes(anchor) ? [] : [`${file}: ${link}`];
      }),
    );
    expect(broken).toEqual([]);
  });
});
