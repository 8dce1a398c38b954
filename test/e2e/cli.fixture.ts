// Owns calling the real command in a folder of its own, with a home of its own.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const BIN = path.join(ROOT, "bin", "holdfast");

export interface Ended {
  readonly status: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Going {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  /** Resolves when standard error has said this. */
  said(text: string): Promise<void>;
}

export class Place {
  readonly folder: string;
  readonly env: NodeJS.ProcessEnv;
  readonly #parent: string;

  constructor() {
    this.#parent = realpathSync(mkdtempSync(path.join(os.tmpdir(), "holdfast-e2e-")));
    // Paths with spaces must work everywhere.
    this.folder = path.join(this.#parent, "my shop");
    mkdirSync(path.join(this.folder, ".holdfast", "workflows"), { recursive: true });
    const { CI: _, NO_COLOR: __, ...env } = process.env;
    this.env = { ...env, HOLDFAST_HOME: path.join(this.#parent, "home"), LANG: "C.UTF-8" };
  }

  file(name: string): string {
    return path.join(this.folder, name);
  }

  write(name: string, text: string): string {
    const file = this.file(name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    return file;
  }

  start(words: readonly string[], options: { env?: NodeJS.ProcessEnv; stdin?: string } = {}): Going {
    const child = spawn(process.execPath, [BIN, ...words], {
      cwd: this.folder,
      env: { ...this.env, ...options.env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    child.stdin.end(options.stdin ?? "");
    const out = { stdout: "", stderr: "" };
    child.stdout.on("data", (chunk: Buffer) => {
      out.stdout += chunk.toString("utf8");
    });
    const listeners = new Set<() => void>();
    child.stderr.on("data", (chunk: Buffer) => {
      out.stderr += chunk.toString("utf8");
      for (const listener of listeners) listener();
    });
    const ended = new Promise<Ended>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, signal) => resolve({ status: code ?? signal ?? "gone", ...out }));
    });
    const said = (text: string) =>
      new Promise<void>((resolve, reject) => {
        const look = () => {
          if (out.stderr.includes(text)) resolve();
        };
        listeners.add(look);
        look();
        void ended.then(() => reject(new Error(`it ended without saying ${text}: ${out.stdout}${out.stderr}`)));
      });
    return { child, ended, said };
  }

  async call(...words: readonly string[]): Promise<Ended> {
    return await this.start(words).ended;
  }

  /** The one document of `--json`. */
  async json<T>(...words: readonly string[]): Promise<T> {
    const { stdout, stderr } = await this.call(...words, "--json");
    if (stdout === "") throw new Error(`no document: ${stderr}`);
    return JSON.parse(stdout) as T;
  }

  remove(): void {
    rmSync(this.#parent, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A trusted workspace with tools of its own: one that reports, one that waits for a file, one that publishes. */
export function shop(): Place {
  const place = new Place();
  place.write(
    "holdfast.config.ts",
    `import { defineTool } from "holdfast";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";

const object = (properties: object) => ({ type: "object", required: Object.keys(properties), additionalProperties: false, properties }) as const;

export default {
  permissions: { read: "allow", write: "allow", publish: "ask" },
  tools: [
    defineTool({
      name: "publish_package",
      description: "Publishes once.",
      input: object({ version: { type: "string" } }),
      output: object({ published: { type: "string" } }),
      capabilities: ["publish"],
      run: async (input: any, { workspace }: any) => {
        appendFileSync(join(workspace, "published.txt"), input.version + "\\n");
        return { published: input.version };
      },
    }),
    defineTool({
      name: "await_file",
      description: "Waits until a file is there, or until it is stopped.",
      input: object({ path: { type: "string" } }),
      output: object({ found: { type: "boolean" } }),
      sideEffect: "read_only",
      run: async (input: any, { workspace, signal }: any) => {
        while (!existsSync(join(workspace, input.path))) {
          signal.throwIfAborted();
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return { found: true };
      },
    }),
  ],
};
`,
  );
  place.write(
    ".holdfast/workflows/release.yaml",
    `workflow_schema: 1
id: release
revision: 1
input_schema: {type: object, required: [version], additionalProperties: false, properties: {version: {type: string}}}
steps:
  - {id: publish, type: tool, tool: publish_package, args: {version: {from: args, pointer: /version}}, capabilities: [publish]}
plan: {type: step, step: publish}
`,
  );
  place.write(
    ".holdfast/workflows/slow.yaml",
    `workflow_schema: 1
id: slow
revision: 1
input_schema: {type: object, additionalProperties: false, properties: {}}
steps:
  - {id: look, type: tool, tool: list_directory, args: {path: "."}, capabilities: [read]}
  - {id: hold, type: tool, tool: await_file, args: {path: go.txt}, capabilities: [read]}
plan: {type: sequence, nodes: [{type: step, step: look}, {type: step, step: hold}]}
`,
  );
  return place;
}
