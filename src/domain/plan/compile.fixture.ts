/** What the compiler's tests write their plans with. */
import type { Json } from "../json.ts";
import { type CompileEnv, compilePlan } from "./index.ts";

export const env: CompileEnv = { maxConcurrency: 64 };

export const OPEN = { type: "object", additionalProperties: true };
export type Doc = Record<string, Json>;

export function step(id: string, more: Doc = {}): Doc {
  return { id, type: "tool", tool: "Read", ...more };
}
export function at(id: string): Doc {
  return { type: "step", step: id };
}
export function doc(steps: Doc[], plan: Json, more: Doc = {}): Json {
  return { workflow_schema: 1, id: "flow", revision: 1, steps, plan, ...more };
}
export function seq(...nodes: Json[]): Json {
  return { type: "sequence", nodes };
}
export function par(...nodes: Json[]): Json {
  return { type: "parallel", nodes };
}
/** The codes and places of the errors, in the order reported. */
export function errors(document: Json, withEnv = env): string[] {
  const { problems, definition } = compilePlan(document, withEnv);
  const found = problems.filter(({ severity }) => severity === "error");
  if ((definition === undefined) !== found.length > 0) throw new Error("a definition and errors, or neither");
  const odd = found.find(({ message }) => !/^Cannot .+: .+; .+/s.test(message));
  if (odd !== undefined) throw new Error(`not what, why and what to do: ${odd.message}`);
  return found.map(({ code, path }) => `${code} /${path.join("/")}`);
}
export const fromStep = (id: string, pointer?: string): Doc => ({
  from: "step",
  step: id,
  ...(pointer === undefined ? {} : { pointer }),
});
