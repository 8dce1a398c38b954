// Owns `npm run bench -- NAME …`: builds bench/NAME.ts as a plain program and runs it with the arguments given.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { buildEntry } from "./build-entry.mjs";
import { root } from "./bundle.mjs";

const folder = path.join(root, "bench");
const names = (existsSync(folder) ? readdirSync(folder) : [])
  .filter((file) => /^[a-z0-9-]+\.ts$/.test(file))
  .map((file) => file.slice(0, -".ts".length));
const [name, ...rest] = process.argv.slice(2);
if (name === undefined || !names.includes(name)) {
  const asked = name === undefined ? "no measurement is named" : `there is no bench/${name}.ts`;
  console.error(`Cannot measure: ${asked}; choose one: ${names.map((each) => `npm run bench -- ${each}`).join(", ")}.`);
  process.exit(2);
}
const program = await buildEntry(`bench/${name}.ts`);
const { status } = spawnSync(process.execPath, ["--expose-gc", program, ...rest], { stdio: "inherit" });
process.exitCode = status ?? 1;
