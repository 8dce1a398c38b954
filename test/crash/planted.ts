/**
 * Ten bugs planted by hand, each in a copy of the sources, to see that the kit finds them (`npm run planted`). A bug
 * is a few replacements of text that must be there: when the code moves on, this says so instead of testing nothing.
 */
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";

interface Planted {
  readonly name: string;
  /** The rule that must be among those that find it. */
  readonly rule: string;
  readonly changes: readonly { readonly file: string; readonly find: string; readonly replace: string }[];
}

const BUGS: readonly Planted[] = [
  {
    name: "settle before intent: a tool is called before its intent is durable",
    rule: "intent_before_effect",
    changes: [
      {
        file: "src/engine/dispatch/tool.ts",
        find: "    if (barrier !== undefined) await barrier;\n    if (isDropped(job)) return this.#neverSent(job);",
        replace:
          "    if (barrier !== undefined) void barrier.catch(() => undefined);\n    if (isDropped(job)) return this.#neverSent(job);",
      },
    ],
  },
  {
    name: "lost fence check: the store takes a write under an old fence",
    rule: "stale_fence_is_refused",
    changes: [
      {
        file: "src/stores/sqlite/journal.ts",
        find: "if (tree === undefined || tree.fence !== commit.fence || tree.owner === null)",
        replace: "if (tree === undefined || tree.fence < 0)",
      },
    ],
  },
  {
    name: "publish before commit: subscribers hear of what may never be",
    rule: "published_is_durable",
    changes: [
      {
        file: "src/engine/tree/journal.ts",
        find: "      run.pending.push(event);",
        replace: "      run.pending.push(event);\n      this.#options.publish(runId, [event], run.state);",
      },
    ],
  },
  {
    name: "memo by arrival order: a recorded outcome goes to whoever waits longest",
    rule: "same_outcome",
    changes: [
      {
        file: "src/engine/program-host.ts",
        find: "    const request = this.#open.get(key);",
        replace:
          '    const request = delivery.type === "outcome" && this.#replaying ? [...this.#open.values()][0] : this.#open.get(key);',
      },
    ],
  },
  {
    name: "refund on retry: a retry gives back the step that it repeats",
    rule: "ledger_is_the_fold",
    changes: [
      {
        file: "src/domain/ledger.ts",
        find: "spent: { ...spent, retries: spent.retries + 1 }",
        replace: "spent: { ...spent, retries: spent.retries + 1, steps: spent.steps - 1 }",
      },
    ],
  },
  {
    name: "grant not consumed: the start does not name the grant that allowed it",
    rule: "a_grant_serves_one_dispatch",
    changes: [
      {
        file: "src/engine/dispatch/tool.ts",
        find: "      ...(grant === undefined ? {} : { grant }),",
        replace: "",
      },
    ],
  },
  {
    name: "redispatch raises the attempt: recovery counts as a new try",
    rule: "recovery_keeps_the_attempt",
    changes: [
      {
        file: "src/engine/dispatch/index.ts",
        find: "(fresh ? 1 : 0),",
        replace: "(fresh || rest.redispatch !== undefined ? 1 : 0),",
      },
      {
        file: "src/domain/state.ts",
        find: "if (event.attempt !== step.attempts + (again ? 0 : 1))",
        replace: "if (event.attempt < step.attempts)",
      },
    ],
  },
  {
    name: "mutation sent again: recovery repeats what may have happened",
    rule: "no_mutation_twice",
    changes: [
      {
        file: "src/engine/dispatch/tool.ts",
        find: 'if (step.side_effect === "mutating" || tool === undefined) {',
        replace: "if (tool === undefined) {",
      },
      {
        file: "src/engine/tree/loading.ts",
        find: 'if (step.status !== "running" || step.side_effect !== "mutating") return undefined;',
        replace: 'if (step.status !== "paused") return undefined;',
      },
    ],
  },
  {
    name: "woke forgotten: the end of a retry's delay is not written down",
    rule: "woke_is_recorded",
    changes: [
      {
        file: "src/engine/program-host.ts",
        find: "return this.#woke.length === 0 ? undefined : this.#woke.splice(0);",
        replace: "this.#woke = [];\n    return undefined;",
      },
    ],
  },
  {
    name: "control_version unchecked: an intent does not say which signals it has seen",
    rule: "control_version_is_checked",
    changes: [
      {
        file: "src/engine/dispatch/tool.ts",
        find: 'tree.append(job.run.runId, [body], { control: tool.side_effect !== "read_only" });',
        replace: "tree.append(job.run.runId, [body]);",
      },
    ],
  },
];

const root = process.cwd();
const work = path.join(root, ".cache", `planted-${process.pid}`);
/** Two cores. */
const AT_ONCE = 2;

interface Found {
  readonly rules: readonly string[];
  readonly failures: number;
  readonly first?: string;
}

/** Copies the sources, plants the bug, bundles the kit from the copy and runs it. */
async function find(bug: Planted | undefined, n: number): Promise<Found> {
  const copy = path.join(work, String(n));
  mkdirSync(copy, { recursive: true });
  for (const part of ["src", "test/sim", "test/crash", "package.json", "tsconfig.json"])
    cpSync(path.join(root, part), path.join(copy, part), { recursive: true });
  for (const { file, find: text, replace } of bug?.changes ?? []) {
    const at = path.join(copy, file);
    const before = readFileSync(at, "utf8");
    if (before.split(text).length !== 2)
      throw new Error(
        `Cannot plant "${bug?.name}": ${file} holds ${JSON.stringify(text)} ${before.split(text).length - 1} times; write it anew`,
      );
    writeFileSync(
      at,
      before.replace(text, () => replace),
    );
  }
  const program = path.join(copy, "kit.mjs");
  await build({
    absWorkingDir: copy,
    entryPoints: ["test/crash/planted-kit.ts"],
    outfile: program,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    logLevel: "error",
  });
  return run(program);
}

function run(program: string): Promise<Found> {
  return new Promise((resolve, reject) => {
    const started = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    started.stdout.on("data", (part: Buffer) => {
      text += part.toString();
    });
    started.on("close", (status) => {
      if (status === 0) resolve(JSON.parse(text) as Found);
      else reject(new Error(`the kit ended with ${status}`));
    });
  });
}

async function main(): Promise<void> {
  const clean = await find(undefined, 0);
  if (clean.failures > 0)
    throw new Error(`Nothing is planted and the kit finds ${clean.failures} failures: ${clean.first}`);
  let missed = 0;
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < BUGS.length) {
      const n = next++;
      const bug = BUGS[n] as Planted;
      const found = await find(bug, n + 1);
      const caught = found.rules.includes(bug.rule);
      if (!caught) missed++;
      console.log(
        `${caught ? "found" : "MISSED"}: ${bug.name}\n  by ${found.rules.join(", ") || "nothing"}\n  ${found.first ?? ""}`,
      );
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  console.log(`${BUGS.length - missed} of ${BUGS.length} planted bugs were found.`);
  process.exitCode = missed === 0 ? 0 : 1;
}

try {
  await main();
} finally {
  if (existsSync(work)) rmSync(work, { recursive: true, force: true });
}
