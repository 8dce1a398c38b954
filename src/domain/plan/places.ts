/**
 * Names of places in a plan: paths of nodes, and the keys under which a program's decisions are recorded. The
 * interpreter writes them and retry reads them, so both take them from here.
 */
import type { Plan } from "./definition.ts";

/** `plan`, `plan.0`, `plan.0.body` … the path of each step's leaf. */
export function leafPaths(plan: Plan): ReadonlyMap<string, string> {
  const paths = new Map<string, string>();
  const visit = (node: Plan, path: string): void => {
    switch (node.type) {
      case "step":
        return void paths.set(node.step, path);
      case "sequence":
      case "parallel":
        for (const [i, child] of node.nodes.entries()) visit(child, childPath(path, i));
        return;
      case "choice":
        visit(node.then_branch, childPath(path, "then"));
        return visit(node.else_branch, childPath(path, "else"));
      case "map":
        return visit(node.body, childPath(path, "body"));
      case "retry":
        return visit(node.node, childPath(path, "node"));
    }
  };
  visit(plan, ROOT_PATH);
  return paths;
}

export const ROOT_PATH = "plan";

export function childPath(path: string, child: number | string): string {
  return `${path}.${child}`;
}

/** A node's entry in a scope: `retry:plan.0@root[2]#1`. */
export function placeKey(kind: string, path: string, scope: string, entry: number): string {
  return `${kind}:${path}@${scope}#${entry}`;
}

/** Path and scope of the retry node that a `retry_reserved` key names. */
export function readRetryKey(key: string): { readonly path: string; readonly scope: string } | undefined {
  const match = /^retry:([^@]+)@([^#]+)#\d+\.\d+$/.exec(key);
  return match === null ? undefined : { path: match[1] as string, scope: match[2] as string };
}

/** The attempts that a step's own policy makes, from the visit of its first one (GD-59): `attempts:each@root[2]#1`. */
export function attemptsKey(instance: string, visit: number): string {
  return `attempts:${instance}#${visit}`;
}

/** Of a `retry_reserved` key of such attempts: the step instance, the visit of the first one, and which retry it is. */
export function readAttemptsKey(
  key: string,
): { readonly instance: string; readonly first: number; readonly retry: number } | undefined {
  const match = /^attempts:(.*)#(\d+)\.(\d+)$/s.exec(key);
  return match === null
    ? undefined
    : { instance: match[1] as string, first: Number(match[2]), retry: Number(match[3]) };
}

/** Step id and scope of an instance id (RP §1). */
export function splitInstance(instance: string): { readonly step: string; readonly scope: string } {
  const at = instance.lastIndexOf("@root");
  return at < 0 ? { step: instance, scope: "root" } : { step: instance.slice(0, at), scope: instance.slice(at + 1) };
}

/** Whether a place lies below another: a node's path within its subtree, a scope within the maps that made it. */
export function liesBelow(inner: string, outer: string): boolean {
  return inner === outer || inner.startsWith(`${outer}.`) || inner.startsWith(`${outer}[`);
}
