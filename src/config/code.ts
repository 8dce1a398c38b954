/**
 * Loads a TypeScript or JavaScript configuration: bundled by esbuild to one module in the state folder's cache,
 * imported, deleted. Packages stay external and are found from the workspace; bare `holdfast` is the running
 * package, so that its tools and errors are those of the process. Only ever called for trusted workspaces.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { SourceMap, type SourceMapPayload } from "node:module";
import { basename, dirname, extname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { HoldfastError } from "../domain/errors.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";

export interface CodeOptions {
  readonly stateDir: string;
  /** Folder that the names in messages are relative to. */
  readonly root: string;
  /** Main module of the running package; `holdfast/NAME` is `NAME` beside it with the same ending. */
  readonly packageEntry?: string;
}

let loads = 0;

/** @returns the module's default export. @throws HoldfastError `usage` with file and line */
export async function importConfig(path: string, options: CodeOptions): Promise<unknown> {
  const { code, map } = await bundle(path, options);
  const folder = join(options.stateDir, "cache");
  // A name of its own for each load: the module cache would answer with an older evaluation.
  const file = join(folder, `config-${process.pid}-${++loads}.mjs`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeFileSync(file, code, { mode: 0o600 });
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw new HoldfastError(
      "storage",
      `Cannot load ${shown(path, options)}: the folder ${folder} cannot be written (${why}); make it writable`,
    );
  }
  try {
    const module = (await import(pathToFileURL(file).href)) as { readonly default?: unknown };
    if (module.default === undefined) throw refusal(path, options, [at(path, options, "there is no default export")]);
    return module.default;
  } catch (error) {
    if (HoldfastError.is(error) && error.details !== undefined) throw error;
    throw refusal(path, options, [thrown(error, file, map, path, options)], error);
  } finally {
    rmSync(file, { force: true });
  }
}

interface Bundled {
  readonly code: string;
  readonly map: SourceMapPayload;
}

async function bundle(path: string, options: CodeOptions): Promise<Bundled> {
  const { build } = await import("esbuild");
  try {
    const result = await build({
      absWorkingDir: options.root,
      entryPoints: [path],
      outfile: "config.mjs",
      write: false,
      bundle: true,
      format: "esm",
      platform: "node",
      target: "node20",
      packages: "external",
      sourcemap: "external",
      logLevel: "silent",
      define: { "import.meta.url": FILE_URL, "import.meta.dirname": DIRNAME, "import.meta.filename": FILENAME },
      plugins: [ownPackage(options.packageEntry), fileScope()],
      tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: false } },
    });
    const text = (ending: string) => result.outputFiles.find((each) => each.path.endsWith(ending))?.text ?? "";
    return { code: text(".mjs"), map: JSON.parse(text(".map")) as SourceMapPayload };
  } catch (error) {
    const { errors } = Object(error) as { errors?: readonly EsbuildMessage[] };
    if (!Array.isArray(errors)) throw error;
    const list = (errors as readonly EsbuildMessage[]).slice(0, 20).map((each) => ({
      ...at(each.location?.file ?? path, options, each.text, each.location?.line),
      column: (each.location?.column ?? 0) + 1,
    }));
    throw refusal(path, options, list, error);
  }
}

interface EsbuildMessage {
  readonly text: string;
  readonly location: { readonly file: string; readonly line: number; readonly column: number } | null;
}

const FILE_URL = "__holdfast_file_url";
const DIRNAME = "__holdfast_dirname";
const FILENAME = "__holdfast_filename";

type Plugin = import("esbuild").Plugin;

function ownPackage(entry: string | undefined): Plugin {
  return {
    name: "holdfast",
    setup(build) {
      if (entry === undefined) return;
      build.onResolve({ filter: /^holdfast(\/.+)?$/ }, ({ path }) => {
        const sub = path.slice("holdfast/".length);
        const file = sub === "" ? entry : join(dirname(entry), `${sub}${extname(entry)}`);
        return { path: pathToFileURL(file).href, external: true };
      });
    },
  };
}

/** Gives each source file its own `import.meta.url`; the bundle's would point into the cache. */
function fileScope(): Plugin {
  return {
    name: "file-scope",
    setup(build) {
      build.onLoad({ filter: /\.[cm]?[jt]s$/ }, async ({ path }) => {
        const { readFile } = await import("node:fs/promises");
        const source = await readFile(path, "utf8");
        const loader = /\.[cm]?ts$/.test(path) ? "ts" : "js";
        if (!source.includes("import.meta")) return { contents: source, loader };
        const url = JSON.stringify(pathToFileURL(path).href);
        // On the first line, so that the lines of messages stay right.
        const scope =
          `const ${FILE_URL} = ${url}, ${DIRNAME} = ${JSON.stringify(dirname(path))},` +
          ` ${FILENAME} = ${JSON.stringify(path)};`;
        return { contents: scope + source, loader };
      });
    },
  };
}

/** What the configuration threw, at the first of its own lines in the stack. */
function thrown(error: unknown, file: string, map: SourceMapPayload, path: string, options: CodeOptions): Diagnostic {
  const said = error instanceof Error ? error.message : String(error);
  const message = said.replaceAll(file, shown(path, options));
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const name = basename(file);
  for (const line of stack.split("\n")) {
    // By its name, which is like no other: stacks hold paths or URLs, encoded or not.
    const start = line.indexOf(name);
    const found = start === -1 ? null : /^:(\d+):(\d+)/.exec(line.slice(start + name.length));
    if (found === null) continue;
    const entry = new SourceMap(map).findEntry(Number(found[1]) - 1, Number(found[2]) - 1);
    if (!("originalLine" in entry) || entry.originalLine === undefined) continue;
    return { ...at(entry.originalSource, options, message, entry.originalLine + 1), column: entry.originalColumn + 1 };
  }
  return at(path, options, message);
}

function at(path: string, options: CodeOptions, message: string, line = 1): Diagnostic {
  return { file: shown(path, options), line, column: 1, code: "config", message, severity: "error" };
}

function shown(path: string, options: CodeOptions): string {
  // esbuild and its map name files from the root.
  const name = relative(options.root, resolve(options.root, path));
  return name === "" || name.startsWith("..") ? path : name;
}

function refusal(path: string, options: CodeOptions, list: readonly Diagnostic[], cause?: unknown): HoldfastError {
  const [first] = list;
  const where = first === undefined ? "" : `${first.file}:${first.line}: ${first.message}`;
  return new HoldfastError("usage", `Cannot load ${shown(path, options)}: ${where}; correct it`, {
    details: { diagnostics: list.map((each) => ({ ...each })) },
    cause,
  });
}
