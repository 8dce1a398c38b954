/**
 * The shapes on the wire (interfaces §1), said once: what is validated when it comes in, what `/openapi.json`
 * documents, and what the tests hold every answer against. Requests are strict: an unknown field is refused.
 */
import { z } from "@hono/zod-openapi";
import { ACTION_NAMES } from "../access/index.ts";
import { ERRORS } from "../domain/errors.ts";
import { FINDING_CODES } from "../domain/projections/index.ts";
import { WAIT_TYPES } from "../domain/run.ts";

// ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

export const runId = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,128}$/)
  .openapi({ example: "0197f0a0-1111-7222-8333-123456789abc" });
export const sessionRef = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/)
  .openapi({ description: "A session's id or name", example: "default" });
export const workflowId = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/)
  .openapi({ example: "open-markers" });
export const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const status = z.enum(["queued", "running", "suspended", "succeeded", "failed", "cancelled"]);
const stepStatus = z.enum(["queued", "running", "suspended", "succeeded", "failed", "cancelled", "skipped"]);
const waitType = z.enum(WAIT_TYPES);
const kind = z.enum(["plan", "graph", "script"]);
const json = z.unknown().openapi({ description: "Any JSON value" });
/** A JSON value that must be there; null is one. */
const given = z
  .unknown()
  .refine((value) => value !== undefined, "is missing; give any JSON value")
  .openapi({ description: "Any JSON value" });
const count = z.int().min(0);
const ms = z.int().min(0);
const at = z.string().openapi({ format: "date-time" });
const reason = z.string().max(4_000);

// ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

/** A whole number in a query: digits only, so that every reader of the address reads the same number. */
export function queryInt(least: number, most: number) {
  return z
    .string()
    .regex(/^\d{1,16}$/, "must be a whole number")
    .transform(Number)
    .refine((value) => value >= least && value <= most, `must be from ${least} to ${most}`)
    .openapi({ type: "integer", minimum: least, maximum: most });
}

export const queryBool = z
  .enum(["true", "false"])
  .transform((text) => text === "true")
  .openapi({ type: "boolean" });
export const limit = queryInt(1, 200).optional().openapi({ type: "integer", minimum: 1, maximum: 200, default: 50 });
export const cursor = z
  .string()
  .min(1)
  .max(2_048)
  .optional()
  .openapi({ description: "`next_cursor` of the page before" });
/** May be given more than once. */
export function queryList<T extends z.ZodType<string>>(item: T) {
  return z
    .preprocess((value) => (typeof value === "string" ? [value] : value), z.array(item).max(16))
    .optional()
    .openapi({ type: "array", items: { type: "string" } });
}
export const statusList = queryList(status);
export const stepStatusList = queryList(stepStatus);
export const waitTypeList = queryList(waitType);
export const kindQuery = z.enum(["plan", "graph", "script", "instruction"]).optional();
export const stateQuery = z.enum(["valid", "broken", "shadowed"]).optional();

const budgetFields = {
  max_concurrency: count.optional(),
  max_agents: count.optional(),
  max_steps: count.optional(),
  max_retries: count.optional(),
  max_nesting_depth: count.optional(),
  wall_time_ms: count.optional(),
  max_tokens: count.optional(),
  max_cost_micros: count.optional(),
};
export const budgetRequest = z.strictObject(budgetFields);
const metadata = z.record(z.string().max(256), json);
const posture = z.enum(["read_only", "ask", "auto"]);
const sessionName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);

export const sessionCreate = z.strictObject({
  name: sessionName.optional(),
  posture: posture.optional(),
  orchestration_opt_in: z.boolean().optional(),
  metadata: metadata.optional(),
});
export const sessionPatch = z.strictObject({
  name: sessionName.optional(),
  posture: posture.optional(),
  orchestration_opt_in: z.boolean().optional(),
  metadata: metadata.optional(),
});
export const startRequest = z.strictObject({
  workflow_id: workflowId,
  revision: z.int().min(1),
  args: json.optional(),
  budget: budgetRequest.optional(),
});
export const checkRequestBody = z.strictObject({
  source: z.string(),
  format: z.enum(["yaml", "json", "toml", "lua", "ts"]),
  file_name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/)
    .optional(),
});
export const previewRequest = z.strictObject({
  revision: z.int().min(1).optional(),
  args: json.optional(),
  budget: budgetRequest.optional(),
});
export const reasonRequest = z.strictObject({ reason: reason.optional() });
export const emptyRequest = z.strictObject({});
export const retryRequest = z.strictObject({ step_id: z.string().min(1).max(1_024).optional() });
export const answerRequest = z.strictObject({
  value: given,
  digest: z
    .string()
    .regex(/^[0-9a-f]{8,64}$/)
    .optional(),
});
export const decisionRequest = z.strictObject({
  digest: z.string().regex(/^[0-9a-f]{8,64}$/),
  reason: reason.optional(),
});
export const repairRequest = z.union([
  z.strictObject({ resolution: z.literal("succeeded"), output: given, digest: z.string().regex(/^[0-9a-f]{8,64}$/) }),
  z.strictObject({
    resolution: z.enum(["failed", "cancelled"]),
    message: reason,
    digest: z.string().regex(/^[0-9a-f]{8,64}$/),
  }),
  z.strictObject({ resolution: z.literal("retry"), reason, digest: z.string().regex(/^[0-9a-f]{8,64}$/) }),
]);

// ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

const diagnostic = z.strictObject({
  file: z.string(),
  line: count,
  column: count,
  code: z.string(),
  message: z.string(),
  severity: z.enum(["error", "warning"]),
  hint: z.string().optional(),
});

export const Problem = z
  .strictObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.enum(Object.keys(ERRORS) as [string, ...string[]]),
    instance: z.string().optional(),
    run_id: z.string().optional(),
    diagnostics: z.array(diagnostic).optional(),
    details: json.optional(),
  })
  .openapi("Problem");

const usage = z.strictObject({
  steps: count,
  retries: count,
  agents: count,
  tokens: count,
  cost_micros: count.nullable(),
});
const failure = z.strictObject({ code: z.string(), message: z.string(), retryable: z.boolean() });
const fullFailure = z.looseObject({ code: z.string(), message: z.string(), retryable: z.boolean() });
const budget = z.strictObject(budgetFields);
const action = z.strictObject({
  name: z.enum(ACTION_NAMES),
  allowed: z.boolean(),
  reason: z.string().optional(),
  wait_id: z.string().optional(),
});
const publicWaitFields = {
  wait_id: z.string(),
  type: waitType,
  run_id: z.string(),
  step_id: z.string().optional(),
  since_ms: ms,
  due_at_ms: ms.optional(),
  deadline_at_ms: ms.optional(),
  warn_at_ms: ms.optional(),
};
export const PublicWait = z.strictObject(publicWaitFields).openapi("PublicWait");
export const Wait = z.looseObject(publicWaitFields).openapi("Wait");
const step = z.strictObject({ id: z.string(), status: stepStatus, failure: failure.optional(), attempts: count });
const plan = z
  .looseObject({ type: z.string() })
  .openapi({ description: "RP-70: kinds and places of the plan, no texts" });
const suspension = z.strictObject({
  type: waitType,
  step_id: z.string().optional(),
  wait_id: z.string().optional(),
  killed: z.boolean().optional(),
});

const publicRunFields = {
  run_id: z.string(),
  parent_run_id: z.string().optional(),
  parent_step_id: z.string().optional(),
  session_id: z.string(),
  workflow_id: z.string(),
  workflow_revision: z.int(),
  definition_bundle_hash: sha256,
  status,
  can_cancel: z.boolean(),
  can_restart_as_new_run: z.boolean(),
  planned_steps: z.array(z.strictObject({ id: z.string(), kind: z.string() })),
  plan,
  steps: z.array(step),
  budget,
  usage,
  child_agent_count: count,
  last_sequence: count,
  failure: failure.optional(),
  suspension: suspension.optional(),
  created_at: at,
  updated_at: at,
  actions: z.array(action),
  waits: z.array(PublicWait),
};
export const PublicRun = z.strictObject(publicRunFields).openapi("PublicRun");
export const Run = z
  .strictObject({
    ...publicRunFields,
    kind,
    root_run_id: z.string(),
    args: json,
    output: json.optional(),
    failure: fullFailure.optional(),
    steps: z.array(
      z.strictObject({ id: z.string(), status: stepStatus, failure: fullFailure.optional(), attempts: count }),
    ),
    waits: z.array(Wait),
  })
  .openapi("Run");
export const RunSummary = z
  .strictObject({
    run_id: z.string(),
    parent_run_id: z.string().optional(),
    session_id: z.string(),
    workflow_id: z.string(),
    workflow_revision: z.int(),
    kind,
    status,
    suspension: waitType.optional(),
    wait_count: count,
    usage,
    last_sequence: count,
    created_at: at,
    updated_at: at,
  })
  .openapi("RunSummary");
const next_cursor = z.string().optional();
export const RunPage = z.strictObject({ runs: z.array(RunSummary), next_cursor }).openapi("RunPage");
export const Pending = z
  .strictObject({ pending: z.literal(true), run_id: z.string(), signal_id: z.string().optional() })
  .openapi("Pending");

export const PublicEvent = z
  .strictObject({
    run_id: z.string(),
    sequence: z.int().min(1),
    at,
    step_id: z.string().optional(),
    type: z.string(),
    name: z.string().optional(),
    failure: failure.optional(),
  })
  .openapi("PublicEvent");
export const OperatorEvent = z
  .looseObject({ run_id: z.string(), sequence: z.int().min(1), at, type: z.string() })
  .openapi("OperatorEvent");
export const EventPage = z.union([z.array(PublicEvent), z.array(OperatorEvent)]);
export const Why = z
  .strictObject({
    run_id: z.string(),
    status,
    sentence: z.string(),
    causes: z.array(
      z.strictObject({
        cause: z.string(),
        sentence: z.string(),
        step_id: z.string().optional(),
        wait_id: z.string().optional(),
        until_ms: ms.optional(),
        ends_by: z.array(z.enum(ACTION_NAMES)),
      }),
    ),
  })
  .openapi("Why");
export const StepPage = z
  .strictObject({
    steps: z.array(
      z.strictObject({
        id: z.string(),
        status: stepStatus,
        failure: failure.optional(),
        attempts: count,
        started_at_ms: ms.optional(),
      }),
    ),
    next_cursor,
  })
  .openapi("StepPage");
export const StepDetail = z
  .looseObject({
    id: z.string(),
    status: stepStatus,
    attempts: count,
    input_hash: z.string(),
    tries: z.array(z.looseObject({ attempt: count })),
  })
  .openapi("StepDetail");
const attemptStatus = z.enum(["running", "suspended", "succeeded", "failed", "cancelled"]);
export const attemptStatusList = queryList(attemptStatus);
export const AttemptPage = z
  .strictObject({
    attempts: z.array(
      z.strictObject({
        step_id: z.string(),
        attempt: z.int().min(1),
        dispatch_id: sha256,
        side_effect: z.enum(["read_only", "idempotent", "mutating"]),
        tool: z.string().optional(),
        status: attemptStatus,
        stage: z.enum(["prepared", "admitted", "cancelling", "abandoned"]).optional(),
        has_receipt: z.boolean(),
        session_id: z.string().optional(),
        redispatches: count,
        prepared_at_ms: ms,
        admitted_at_ms: ms.optional(),
        terminal_at_ms: ms.optional(),
      }),
    ),
    next_cursor,
  })
  .openapi("AttemptPage");
export const RunFindings = z
  .strictObject({
    findings: z.array(
      z.strictObject({
        code: z.enum(FINDING_CODES),
        message: z.string(),
        guidance: z.string(),
        run_id: z.string(),
        step_id: z.string().optional(),
        attempt: z.int().optional(),
        dispatch_id: z.string().optional(),
        wait_id: z.string().optional(),
      }),
    ),
    truncated: z.boolean(),
  })
  .openapi("RunFindings");
export const Installation = z
  .strictObject({
    ok: z.boolean(),
    checks: z.array(
      z.strictObject({ name: z.string(), ok: z.boolean(), detail: z.string(), fix: z.string().optional() }),
    ),
  })
  .openapi("Installation");
export const WaitPage = z
  .strictObject({ waits: z.array(z.union([PublicWait, Wait])), next_cursor })
  .openapi("WaitPage");

export const Session = z
  .strictObject({
    session_id: z.string(),
    name: z.string(),
    workspace: z.string().optional(),
    trusted: z.boolean(),
    posture,
    orchestration_opt_in: z.boolean(),
    active_runs: count,
    metadata,
    created_at: at,
  })
  .openapi("Session");
export const SessionPage = z.strictObject({ sessions: z.array(Session), next_cursor }).openapi("SessionPage");

const entryFields = {
  workflow_id: z.string(),
  revision: z.int(),
  kind: z.enum(["plan", "graph", "script", "instruction"]),
  title: z.string().optional(),
  description: z.string().optional(),
  source: z.enum(["workspace", "user", "builtin", "code"]),
  path: z.string().optional(),
  definition_hash: z.string().optional(),
  invocation_policy: z.looseObject({}),
  tool_name: z.string().optional(),
  input_schema: z.looseObject({}).optional(),
  output_schema: z.looseObject({}).optional(),
  state: z.enum(["valid", "broken", "shadowed"]),
  diagnostics: z.array(diagnostic),
};
export const WorkflowEntry = z.strictObject(entryFields).openapi("WorkflowEntry");
export const WorkflowPage = z
  .strictObject({ workflows: z.array(WorkflowEntry), publication_revision: count })
  .openapi("WorkflowPage");
export const WorkflowShown = z
  .strictObject({ ...entryFields, plan: plan.optional(), source_text: z.string().optional() })
  .openapi("WorkflowShown");
export const CheckResult = z.strictObject({ ok: z.boolean(), diagnostics: z.array(diagnostic) }).openapi("CheckResult");
export const Reloaded = z
  .strictObject({ publication_revision: count, diagnostics: z.array(diagnostic) })
  .openapi("Reloaded");
export const Preview = z
  .looseObject({
    workflow_id: z.string(),
    revision: z.int(),
    definition_hash: z.string(),
    plan,
    steps: z.array(z.looseObject({ step_id: z.string() })),
    approvals: z.array(z.string()),
    refusals: z.array(z.looseObject({ code: z.string(), message: z.string() })),
  })
  .openapi("Preview");
export const Version = z
  .strictObject({ version: z.string(), api: z.literal(1), store: z.string(), journal_schema: z.int() })
  .openapi("Version");
export const Health = z.strictObject({ ok: z.boolean(), reason: z.string().optional() }).openapi("Health");
