// Owns the direction of imports (DESIGN §3): domain <- ports <- engine <- adapters <- access <- edges.
import type { Import } from "./repository.ts";
import { isTest } from "./repository.ts";

const ADAPTERS = ["stores", "catalog", "config", "tools", "agents", "scripts"];
const LAYERS = [["domain"], ["ports"], ["engine"], ADAPTERS, ["access"], ["server", "mcp", "client", "cli"]];
/** The rooms that put the others together. */
const COMPOSITION_ROOTS = ["index.ts", "cli"];
/** `holdfast test` is the simulated world for everybody: the one command that runs it. */
const TEST_COMMAND = "src/cli/commands/test.ts";

/** The room of a source file: its folder under src, or the file itself for those directly in src. */
export function roomOf(file: string): string | undefined {
  return /^src\/([^/]+)/.exec(file)?.[1];
}

function layerOf(room: string): number {
  return LAYERS.findIndex((rooms) => rooms.includes(room));
}

/** Why this import is not allowed, or undefined. Tests may import what they test against. */
export function importProblem(found: Import): string | undefined {
  const from = roomOf(found.file);
  if (from === undefined || isTest(found.file)) return undefined;
  if (found.target === undefined) return builtinProblem(from, found.specifier);
  if (found.target === "package.json") return undefined;
  const to = roomOf(found.target);
  if (to === undefined) return "leaves src";
  if (isTest(found.target)) return "imports a test";
  if (from === to) return undefined;
  const allowed = found.file === TEST_COMMAND && to === "testing";
  return (allowed ? undefined : directionProblem(from, to)) ?? faceProblem(to, found.target);
}

function builtinProblem(from: string, specifier: string): string | undefined {
  if (from !== "domain" || !specifier.startsWith("node:") || specifier === "node:crypto") return undefined;
  return "domain is pure: of Node it knows only the hash function";
}

function directionProblem(from: string, to: string): string | undefined {
  if (COMPOSITION_ROOTS.includes(from)) return to === "testing" ? "product code imports src/testing" : undefined;
  if (to === "testing") return "product code imports src/testing";
  if (to === "index.ts") return "only the command line imports src/index.ts";
  const target = layerOf(to);
  if (target < 0) return `src/${to} is no room of DESIGN §3`;
  // Conformance suites and the simulated world stand beside access.
  if (from === "testing") return target < layerOf("access") ? undefined : "src/testing imports only below access";
  const source = layerOf(from);
  if (source < 0) return `src/${from} is no room of DESIGN §3`;
  if (target < source) return undefined;
  return target === source ? `src/${from} and src/${to} do not know each other` : "imports go down only";
}

/** Domain is words that everybody shares, and access/api.ts the contract of all callers; every other room shows one face. */
function faceProblem(to: string, target: string): string | undefined {
  if (to === "domain" || to === "index.ts" || target === "src/access/api.ts") return undefined;
  return target.endsWith("/index.ts") ? undefined : `import src/${to} through its index.ts`;
}
