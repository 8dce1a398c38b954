/** What a process pays to load the built package, and to answer `holdfast --help`, over a Node that does nothing. */
import { spawnSync } from "node:child_process";
import { readdirSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { atMost, type Bench, type Measured, medianOf, repeat, shown, type Workload } from "../measure.ts";
import { readProfile } from "../profile.ts";

export const startUp: Workload = {
  name: "start-up",
  measure,
  profile: async ({ folder }) => {
    const place = folder();
    seconds(["--cpu-prof", "--cpu-prof-interval", "200", "--cpu-prof-dir", place, ...loadWords(await built(folder()))]);
    const [file = ""] = readdirSync(place);
    return readProfile(join(place, file));
  },
};

function loadWords(dist: string): string[] {
  const library = pathToFileURL(join(dist, "index.mjs")).href;
  return ["--input-type=module", "-e", `import ${JSON.stringify(library)}`];
}

async function measure({ size, folder }: Bench): Promise<Measured> {
  const place = await built(folder());
  const nothing = ["-e", "0"];
  const load = loadWords(place);
  const help = [join(place, "cli.mjs"), "--help"];
  for (const words of [nothing, load, help]) seconds(words);
  const taken = await repeat(size.starts, async () => ({
    nothing: seconds(nothing),
    load: seconds(load),
    help: seconds(help),
  }));
  const node = shown(medianOf(taken, (one) => one.nothing));
  const figure = (work: string, field: "load" | "help") => ({
    work,
    value: medianOf(taken, (one) => one[field] - one.nothing),
    must: atMost(0.2, "s"),
    aim: atMost(0.1, "s"),
    beside: `${shown(medianOf(taken, (one) => one[field]))} s; \`node -e 0\` ${node} s`,
  });
  return { figures: [figure('`import "holdfast"`, built', "load"), figure("`holdfast --help`, built", "help")] };
}

/** The code of the published build (tsdown.config.ts), without its types: they are not loaded. */
async function built(folder: string): Promise<string> {
  const outDir = join(folder, "dist");
  symlinkSync(resolve("node_modules"), join(folder, "node_modules"), "junction");
  // Loaded here only: the children of other workloads are this program too, and their memory is measured.
  const { build } = await import("tsdown");
  await build({
    config: false,
    entry: { cli: "src/cli/main.ts", index: "src/index.ts", testing: "src/testing/index.ts" },
    format: "esm",
    platform: "node",
    target: "node20.19",
    outDir,
    dts: false,
    logLevel: "error",
  });
  return outDir;
}

function seconds(words: readonly string[]): number {
  const start = performance.now();
  const { status, stderr } = spawnSync(process.execPath, words, { encoding: "utf8", env: withoutOptions() });
  if (status !== 0) throw new Error(`Cannot measure: node ended with ${status}: ${stderr}`);
  return (performance.now() - start) / 1000;
}

function withoutOptions(): NodeJS.ProcessEnv {
  const { NODE_OPTIONS: _, ...env } = process.env;
  return env;
}
