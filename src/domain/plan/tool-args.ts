/**
 * Names of arguments against what a tool declares: warnings only, since the tool that a run meets may be another one.
 * Values are the tool's own affair at run time; many are references that nothing is known of yet.
 */
import { getOwn, type Json, type JsonObject } from "../json.ts";
import { didYouMean, type Path } from "../schema/index.ts";
import type { Schema, ToolStep } from "./definition.ts";
import { isFrom, isObject, type Report } from "./read.ts";

export function warnOfToolArgs(step: ToolStep, path: Path, inputSchema: Schema, report: Report): void {
  const members = membersOf(step.args);
  if (members === undefined) return;
  const properties = getOwn(inputSchema, "properties");
  const known = isObject(properties) ? Object.keys(properties) : [];
  const at = [...path, "args"];
  if (getOwn(inputSchema, "additionalProperties") === false) {
    for (const name of Object.keys(members)) {
      if (known.includes(name)) continue;
      const message = `Cannot expect "${step.tool}" to take "${name.slice(0, 64)}": it knows ${known.join(", ") || "no arguments"}; correct the name`;
      report.warn([...at, ...(members === step.args ? [name] : [])], "tool_args", message, didYouMean(name, known));
    }
  }
  const required = getOwn(inputSchema, "required");
  for (const name of Array.isArray(required) ? required : []) {
    if (typeof name !== "string" || Object.hasOwn(members, name)) continue;
    const message = `Cannot expect "${step.tool}" to work without "${name}": it requires that argument; give it`;
    report.warn(step.args === null ? path : at, "tool_args", message);
  }
}

/** The arguments by name, where the template itself shows them. */
function membersOf(args: Json): JsonObject | undefined {
  if (args === null) return {};
  if (!isObject(args) || Object.hasOwn(args, "$secret")) return undefined;
  if (!isFrom(args)) return args;
  return args.from === "object" && isObject(args.fields) ? args.fields : undefined;
}
