/** Workflow steps: a child run is created together with the link to it, and its journal is the truth of its outcome. */
import { childRunId } from "../../domain/journal.ts";
import { canonicalJson, sha256 } from "../../domain/json.ts";
import { applyDefaults, compileSchema, definitionKey, findCredential } from "../../domain/plan/index.ts";
import { type Failure, failure, isTerminal, type RunHeader } from "../../domain/run.ts";
import type { RunState, StepState } from "../../domain/state.ts";
import type { ChildRequest } from "../requests.ts";
import type { TreeExecutor } from "../tree/executor.ts";
import { wake } from "../tree/parents.ts";
import { childToCopy, copyOf } from "../tree/retrying.ts";
import { isDropped, type Job } from "../work.ts";
import { intent } from "./index.ts";

type ChildJob = Job & { request: ChildRequest };

export async function startChild(tree: TreeExecutor, job: ChildJob): Promise<void> {
  job.stage = "running";
  const body = intent(tree, job, { side_effect: "idempotent" });
  const attempt = body.type === "step_started" ? body.attempt : 1;
  const checked = checkArgs(tree, job);
  if (!checked.ok) {
    tree.append(job.run.runId, [body]);
    return tree.fail(job, checked.failure);
  }
  const { made_from: _, ...parent } = tree.journal.run(job.run.runId).header;
  const earlier = await childToCopy(tree, tree.journal.run(job.run.runId).header, job.instance);
  if (isDropped(job) || tree.closed) return;
  const child_run_id = childRunId(tree.rootRunId, parent.run_id, job.instance, attempt);
  const { workflow_id, revision } = job.request.definition;
  const definition = tree.services.definition(definitionKey(workflow_id, revision));
  const header: RunHeader = {
    ...parent,
    run_id: child_run_id,
    parent_run_id: parent.run_id,
    parent_step_id: job.instance,
    workflow_id,
    workflow_revision: revision,
    args: checked.args,
    args_hash: sha256(canonicalJson(checked.args)),
    budget: definition.budgets,
    created_at_ms: tree.now(),
    depth: parent.depth + 1,
    ...(earlier === undefined ? {} : { made_from: { run_id: earlier, how: "retry" as const } }),
  };
  const copied = earlier === undefined ? undefined : await copyOf(tree.ports.store, earlier, definition);
  if (isDropped(job) || tree.closed) return;
  tree.append(job.run.runId, [body, { type: "child_linked", step_id: job.instance, child_run_id }]);
  tree.journal.createRun(header);
  tree.journal.append(child_run_id, copied?.events ?? [{ type: "run_queued" }, { type: "run_started" }]);
  if (copied !== undefined) tree.absorb(child_run_id);
  await tree.begin(tree.activate(header, copied?.recorded));
}

function checkArgs(
  tree: TreeExecutor,
  job: ChildJob,
): { ok: true; args: ChildRequest["input"] } | { ok: false; failure: Failure } {
  const { workflow_id, revision } = job.request.definition;
  const definition = tree.services.definition(definitionKey(workflow_id, revision));
  const args = applyDefaults(definition.input_schema, job.request.input);
  const fits = compileSchema(definition.input_schema).validate(args);
  if (!fits.ok)
    return {
      ok: false,
      failure: failure(
        "invalid_input",
        `the arguments do not fit "${workflow_id}" at ${fits.path || "/"}: ${fits.message}`,
      ),
    };
  const leak = findCredential(args, "args");
  if (leak !== undefined)
    return {
      ok: false,
      failure: failure("invalid_input", `the arguments hold what looks like a credential at ${leak.path}`),
    };
  return { ok: true, args };
}

/** A workflow step that was open: its child is resumed where it stands. */
export async function resumeChild(tree: TreeExecutor, job: ChildJob, step: StepState): Promise<void> {
  const child = step.child_run_id === undefined ? undefined : tree.journal.runs.get(step.child_run_id);
  // Halted with its run: it goes on when the run does, but what waits below it can be answered meanwhile.
  if (step.status === "suspended" && step.was !== undefined) {
    job.stage = "waiting";
    const active = child === undefined ? undefined : tree.runs.get(child.header.run_id);
    if (active !== undefined) tree.goLive(active);
    return;
  }
  if (child === undefined) return startChild(tree, job);
  job.stage = step.status === "suspended" ? "waiting" : "running";
  if (isTerminal(child.state.status)) return childEnded(tree, job, child.state);
  const active = tree.runs.get(child.header.run_id);
  if (active === undefined) return;
  if (child.state.status === "running") tree.armWallTimer(active);
  tree.goLive(active);
}

/** RP-45: the child's output is the step's; its failure passes through with code and retryable flag. */
export function childEnded(tree: TreeExecutor, job: Job, child: RunState): void {
  if (job.stage === "waiting") wake(tree, job.run, job);
  if (child.status === "succeeded") {
    const schema = stepSchema(job);
    const output = child.output ?? null;
    const fits = schema === undefined ? { ok: true as const } : compileSchema(schema).validate(output);
    if (fits.ok) return tree.settle(job, { type: "succeeded", output });
    return tree.fail(
      job,
      failure(
        "invalid_output",
        `the child's output does not fit the step's schema at ${fits.path || "/"}: ${fits.message}`,
      ),
    );
  }
  tree.fail(job, child.failure ?? failure("execution_failed", "the child run failed"));
}

function stepSchema(job: Job): Parameters<typeof compileSchema>[0] | undefined {
  const id = job.instance.split("@")[0];
  return job.run.definition.steps.find((step) => step.id === id)?.output_schema;
}
