/** Every reference of a definition with the place where it stands, for the checks of RP-5, RP-6 and RP-13. */
import type { Json, JsonObject } from "../json.ts";
import type { Path } from "../schema/index.ts";
import type { Condition, Plan, Step, ValueRef } from "./definition.ts";
import { isFrom, isObject } from "./read.ts";

export interface PlacedReference {
  readonly reference: ValueRef;
  readonly path: Path;
}

/** References of a template, outermost first; those inside an object reference follow it. Literals hold none (RP-4). */
export function templateReferences(template: Json, path: Path): PlacedReference[] {
  const out: PlacedReference[] = [];
  collect(template, path, out);
  return out;
}

function collect(template: Json, path: Path, out: PlacedReference[]): void {
  if (Array.isArray(template)) template.forEach((item: Json, index) => void collect(item, [...path, index], out));
  else if (isObject(template)) {
    if (!isFrom(template)) collectMembers(template, path, out);
    else collectReference(template as unknown as ValueRef, path, out);
  }
}

function collectReference(reference: ValueRef, path: Path, out: PlacedReference[]): void {
  out.push({ reference, path });
  if (reference.from === "object") collectMembers(reference.fields, [...path, "fields"], out);
}

function collectMembers(members: JsonObject, path: Path, out: PlacedReference[]): void {
  for (const [key, item] of Object.entries(members)) collect(item, [...path, key], out);
}

/** The templates of a step, by key. */
export function stepTemplates(step: Step): [key: string, template: Json][] {
  switch (step.type) {
    case "tool": {
      // Of a claim only the name is a template; nothing else in it can be taken for one.
      const claims: [string, Json][] =
        step.resources === undefined ? [] : [["resources", step.resources as unknown as Json]];
      return [["args", step.args], ...claims];
    }
    case "workflow":
      return [["args", step.args]];
    case "agent":
      return [["prompt", step.prompt]];
    case "approval":
    case "input":
      return step.details === undefined ? [] : [["details", step.details]];
    case "wait":
      if (step.for_ms !== undefined) return [["for_ms", step.for_ms]];
      return step.until === undefined ? [] : [["until", step.until]];
  }
}

/** Whatever a step reads. */
export function stepReferences(step: Step, path: Path): PlacedReference[] {
  return stepTemplates(step).flatMap(([key, template]) => templateReferences(template, [...path, key]));
}

/** Whatever a plan node reads itself, not its parts: a map's source, a choice's condition. */
export function nodeReferences(plan: Plan, path: Path): PlacedReference[] {
  const out: PlacedReference[] = [];
  if (plan.type === "map") collectReference(plan.source, [...path, "source"], out);
  if (plan.type === "choice") {
    const at = [...path, "condition"];
    if (plan.condition.from === "test") collectReference(plan.condition.of, [...at, "of"], out);
    else collectReference(plan.condition, at, out);
  }
  return out;
}

/** What a condition decides by. */
export function conditionSource(condition: Condition): ValueRef {
  return condition.from === "test" ? condition.of : condition;
}

/** A plan node's parts with their paths, in order. */
export function childPaths(plan: Plan, path: Path): [node: Plan, path: Path][] {
  switch (plan.type) {
    case "step":
      return [];
    case "sequence":
    case "parallel":
      return plan.nodes.map((node, index) => [node, [...path, "nodes", index]]);
    case "choice":
      return [
        [plan.then_branch, [...path, "then_branch"]],
        [plan.else_branch, [...path, "else_branch"]],
      ];
    case "map":
      return [[plan.body, [...path, "body"]]];
    case "retry":
      return [[plan.node, [...path, "node"]]];
  }
}

/** The name by which later steps may read a node's value, if it has one. */
export function nodeId(plan: Plan): string | undefined {
  if (plan.type === "step") return plan.step;
  return plan.type === "map" || plan.type === "parallel" || plan.type === "choice" ? plan.id : undefined;
}
