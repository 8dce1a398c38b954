/**
 * The front matter of a SKILL.md: what a skill bundle `NAME/{SKILL.md, workflow.yaml}` is called and what it is
 * for. A SKILL.md without a workflow beside it is an instruction: listed, never run (RP-8).
 */
import type { JsonObject } from "../domain/json.ts";
import type { Diagnostic } from "../domain/plan/definition.ts";
import { refused } from "./document.ts";
import { readYaml } from "./yaml.ts";

/** Longest front matter, in characters; the text below it is not looked at. */
const MAX_FRONT_MATTER = 65_536;
const MAX_NAME = 64;
const MAX_DESCRIPTION = 1_024;

export type SkillResult =
  | { readonly name: string; readonly description: string; readonly diagnostics?: undefined }
  | { readonly name?: undefined; readonly diagnostics: readonly Diagnostic[] };

/**
 * Reads `name` (lowercase words joined by hyphens) and `description`; other keys are tolerated, since skills are
 * shared between products that each add their own.
 */
export function readSkill(text: string, file: string): SkillResult {
  const lines = /^---[ \t]*\r?\n([\s\S]*?)^---[ \t]*(?:\r?\n|$)/m;
  const found = text.startsWith("---") ? lines.exec(text.slice(0, MAX_FRONT_MATTER)) : null;
  if (found === null || found.index !== 0)
    return refused(file, "front_matter", "the file does not start with front matter", FRONT_MATTER_HINT);
  // The blank first line stands for the `---`, so that places are those of the file.
  const read = readYaml(`\n${found[1] ?? ""}`, file);
  if (read.diagnostics !== undefined) return { diagnostics: read.diagnostics };
  if (typeof read.value !== "object" || read.value === null || Array.isArray(read.value))
    return refused(file, "front_matter", "the front matter is not a mapping", FRONT_MATTER_HINT);
  const { name, description } = read.value as JsonObject;
  const diagnostics: Diagnostic[] = [];
  const add = (key: string, message: string) =>
    diagnostics.push({ file, ...read.locate([key]), code: "front_matter", message, severity: "error" });
  if (typeof name !== "string" || name.length > MAX_NAME || !/^[a-z0-9]+([-_][a-z0-9]+)*$/.test(name))
    add("name", `\`name\` must be lowercase words joined by hyphens, at most ${MAX_NAME} characters`);
  if (typeof description !== "string" || description.trim() === "" || description.length > MAX_DESCRIPTION)
    add("description", `\`description\` must say in 1 to ${MAX_DESCRIPTION} characters what the skill is for`);
  if (diagnostics.length > 0) return { diagnostics };
  return { name: name as string, description: description as string };
}

const FRONT_MATTER_HINT = "start with a line ---, then `name: …` and `description: …`, then a line ---";
