// Owns `npm run bench`: builds bench/run.ts as a plain program and runs it with the arguments given. What the store
// alone can do is another program: `npm run bench -- store-rate`.
import { spawnSync } from "node:child_process";
import { buildEntry } from "./build-entry.mjs";
import { root } from "./bundle.mjs";

const [first, ...rest] = process.argv.slice(2);
const [name, words] = first === "store-rate" ? [first, rest] : ["run", process.argv.slice(2)];
const program = await buildEntry(`bench/${name}.ts`);
const { status } = spawnSync(process.execPath, ["--expose-gc", program, ...words], { cwd: root, stdio: "inherit" });
process.exitCode = status ?? 1;
