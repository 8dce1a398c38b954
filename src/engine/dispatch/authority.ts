/** Whether a tool may be called now, and with which secrets: asked each time, before anything is written or sent. */
import type { Json } from "../../domain/json.ts";
import { declaredSecrets, secretHandles, substituteSecrets } from "../../domain/plan/index.ts";
import { type Failure, failure } from "../../domain/run.ts";
import type { Posture, ToolDescriptor } from "../../ports/index.ts";
import type { ToolSpec } from "../program.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import type { Job } from "../work.ts";

/** The session's posture as the store has it now; undefined when it cannot be read. */
export async function currentPosture(tree: TreeExecutor): Promise<Posture | undefined> {
  // a change of posture raises control_version, and the store refuses intents that have not seen it.
  if (tree.postureSeen === tree.journal.controlVersion) return tree.posture;
  try {
    const session = await tree.ports.sessions.getSession(tree.sessionId);
    if (session === undefined) return undefined;
    tree.posture = session.posture;
    tree.postureSeen = tree.journal.controlVersion;
    return session.posture;
  } catch {
    return undefined;
  }
}

/** asked at every dispatch, with today's policy, trust and posture (RP-20). */
export function authorise(
  tree: TreeExecutor,
  spec: ToolSpec,
  tool: ToolDescriptor,
  posture: Posture,
): { type: "allow" } | { type: "ask"; reason: string } | { type: "refuse"; failure: Failure } {
  const trusted = tree.services.trusted();
  const answer = tree.ports.policy.decide({
    kind: "tool",
    target: spec.tool,
    declared: spec.capabilities,
    capabilities: tool.capabilities,
    side_effect: tool.side_effect,
    trusted,
    posture,
  });
  if (answer.decision === "allow") return { type: "allow" };
  if (answer.decision === "ask") return { type: "ask", reason: answer.reason };
  if (answer.cause === "plan_mode")
    return {
      type: "refuse",
      failure: failure("execution_failed", `"${spec.tool}" is blocked: the session is in Plan mode, which only reads`),
    };
  return {
    type: "refuse",
    failure: failure(
      trusted ? "permission_denied" : "untrusted_workspace",
      `"${spec.tool}" is not allowed: ${answer.reason}`,
    ),
  };
}

/** Only handles that the author or the caller wrote are resolved: one that came in through a tool's output is not. */
export async function resolveSecrets(
  tree: TreeExecutor,
  job: Job,
): Promise<{ ok: true; input: Json; values: string[] } | { ok: false; failure: Failure }> {
  const { input } = job.request;
  const names = secretHandles(input);
  if (names.length === 0) return { ok: true, input, values: [] };
  const declared = declaredSecrets(job.run.definition, job.run.host.args);
  const values = new Map<string, string>();
  for (const name of names) {
    if (!declared.has(name))
      return {
        ok: false,
        failure: failure(
          "permission_denied",
          `the secret "${name}" is named neither by the definition nor by the arguments`,
        ),
      };
    const answer = await tree.ports.secrets.resolve(name);
    if (!answer.ok)
      return {
        ok: false,
        failure: failure("permission_denied", `the secret "${name}" cannot be used: ${answer.reason}`),
      };
    values.set(name, answer.value);
  }
  return { ok: true, input: substituteSecrets(input, values), values: [...values.values()] };
}
