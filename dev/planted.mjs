// Owns `npm run planted`: plants ten bugs in copies of the sources and shows that the crash kit finds each of them.
import { spawnSync } from "node:child_process";
import { buildEntry } from "./build-entry.mjs";
import { root } from "./bundle.mjs";

const program = await buildEntry("test/crash/planted.ts");
const { status } = spawnSync(process.execPath, [program], { stdio: "inherit", cwd: root });
process.exitCode = status ?? 1;
