/**
 * Waits that a person can answer through the client's own form: inputs whose schema a form can hold, and
 * approvals only where the configuration says so. A model never answers: what a form brings is the person's word.
 */
import type { Run } from "../access/index.ts";
import { HoldfastError } from "../domain/errors.ts";
import { canonicalJson, type Json, type JsonObject } from "../domain/json.ts";
import type { Wait } from "../domain/run.ts";
import { callerOf, type McpService } from "./service.ts";

/** Deepest nesting of runs looked into, and most questions put at once. */
const MAX_DEPTH = 8;
const MAX_QUESTIONS = 32;
/** what is longer has to be opened whole before it is decided on, which a form cannot show. */
const MAX_SHOWN = 10_000;
const MAX_REASON = 500;
/** Digits of the digest that a form carries back; 16 are beyond guessing and still readable. */
const DIGEST_DIGITS = 16;

export interface Question {
  /** `wait_id`; of a child run `run_id/wait_id`, because wait ids are unique within a run only. */
  readonly key: string;
  readonly request: { readonly method: "elicitation/create"; readonly params: JsonObject };
  /** @throws HoldfastError `input` for content that does not fit, `conflict` when it was decided meanwhile */
  answer(content: JsonObject, client: string): Promise<void>;
}

/** Open questions of a run and of the child runs that it waits for. */
export async function openQuestions(service: McpService, run: Run): Promise<readonly Question[]> {
  const questions: Question[] = [];
  await collect(service, run, run.run_id, 0, questions);
  return questions;
}

async function collect(service: McpService, run: Run, root: string, depth: number, found: Question[]): Promise<void> {
  for (const wait of run.waits) {
    if (found.length >= MAX_QUESTIONS) return;
    if (wait.type === "child" && wait.child_run_id !== undefined && depth < MAX_DEPTH) {
      const child = await service.holdfast.runs.inspect(wait.child_run_id, service.session);
      await collect(service, child, root, depth + 1, found);
      continue;
    }
    const key = run.run_id === root ? wait.wait_id : `${run.run_id}/${wait.wait_id}`;
    const question = wait.granted === undefined ? await questionOf(service, run, wait, key) : undefined;
    if (question !== undefined) found.push(question);
  }
}

async function questionOf(service: McpService, run: Run, wait: Wait, key: string): Promise<Question | undefined> {
  if (wait.type === "input") return inputQuestion(service, run, wait, key);
  const asked = wait.type === "approval" || wait.type === "tool_approval";
  if (!asked || service.approvals !== "elicit" || wait.digest === undefined) return undefined;
  return approvalQuestion(service, run, wait, key, wait.digest);
}

// ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────

function inputQuestion(service: McpService, run: Run, wait: Wait, key: string): Question | undefined {
  const form = formOf(wait.schema);
  if (form === undefined) return undefined;
  const details = wait.details === undefined ? "" : `\n\n${canonicalJson(wait.details)}`;
  const message = visible(`${wait.prompt ?? "Input is needed."}${details}`);
  if (message.length > MAX_SHOWN) return undefined;
  return {
    key,
    request: elicitation(message, form.schema),
    async answer(content, client) {
      const value = form.unwrap(content);
      if (value === undefined) throw new HoldfastError("input", "Cannot answer: the form brought no value; fill it in");
      await service.holdfast.waits.answer(
        run.run_id,
        wait.wait_id,
        { value, decided_by: callerOf(client), ...(wait.digest === undefined ? {} : { digest: wait.digest }) },
        service.session,
      );
    },
  };
}

interface Form {
  readonly schema: JsonObject;
  unwrap(content: JsonObject): Json | undefined;
}

/** A form holds one level of texts, numbers and choices; a single value stands in it as `value`. */
function formOf(schema: Json | undefined): Form | undefined {
  const root = asObject(schema);
  if (root === undefined) return undefined;
  const single = fieldOf(root);
  if (single !== undefined)
    return {
      schema: { type: "object", properties: { value: single }, required: ["value"] },
      unwrap: (content) => (Object.hasOwn(content, "value") ? content.value : undefined),
    };
  const properties = asObject(root.properties);
  if (root.type !== "object" || properties === undefined) return undefined;
  const fields: [string, JsonObject][] = [];
  for (const [name, property] of Object.entries(properties)) {
    const field = fieldOf(asObject(property) ?? {});
    if (field === undefined) return undefined;
    fields.push([name, field]);
  }
  const required = Array.isArray(root.required) ? { required: root.required } : {};
  return {
    schema: { type: "object", properties: Object.fromEntries(fields), ...required },
    unwrap: (content) => content,
  };
}

/** Keywords that the protocol's forms know; the run checks the answer by the whole schema. */
const FIELD_KEYWORDS: { readonly [type: string]: readonly string[] } = {
  string: ["title", "description", "minLength", "maxLength", "enum", "default"],
  number: ["title", "description", "minimum", "maximum", "default"],
  integer: ["title", "description", "minimum", "maximum", "default"],
  boolean: ["title", "description", "default"],
};

function fieldOf(schema: JsonObject): JsonObject | undefined {
  const { type } = schema;
  if (typeof type !== "string" || !Object.hasOwn(FIELD_KEYWORDS, type)) return undefined;
  if (schema.enum !== undefined && type !== "string") return undefined;
  const kept = (FIELD_KEYWORDS[type] ?? []).flatMap((name): [string, Json][] => {
    const value = schema[name];
    return value === undefined ? [] : [[name, value]];
  });
  return { type, ...Object.fromEntries(kept) };
}

// ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────

/** shown are the tool, its whole arguments, the workspace, the side effect, who asks, the deadline, the digest. */
async function approvalQuestion(
  service: McpService,
  run: Run,
  wait: Wait,
  key: string,
  whole: string,
): Promise<Question | undefined> {
  const digest = whole.slice(0, DIGEST_DIGITS);
  const { workspace } = await service.holdfast.sessions.get(service.session);
  const line = (name: string, value: string | undefined): string => (value === undefined ? "" : `\n${name}: ${value}`);
  const message = visible(
    [
      wait.type === "tool_approval"
        ? "A workflow asks to use a tool."
        : (wait.prompt ?? "A workflow asks for approval."),
      line("Workflow", `${run.workflow_id}@${run.workflow_revision}, step ${wait.step_id ?? "?"}`),
      line("Tool", wait.tool),
      line("Side effect", wait.side_effect),
      line("Arguments", wait.input === undefined ? undefined : canonicalJson(wait.input)),
      line("Details", wait.details === undefined ? undefined : canonicalJson(wait.details)),
      line("Workspace", workspace),
      line("Asked by", `${wait.started_by ?? "somebody unknown"}, session ${service.session}, run ${run.run_id}`),
      line("Deadline", wait.deadline_at_ms === undefined ? undefined : new Date(wait.deadline_at_ms).toISOString()),
      line("Digest", digest),
    ].join(""),
  );
  if (message.length > MAX_SHOWN) return undefined;
  const schema: JsonObject = {
    type: "object",
    properties: {
      decision: { type: "string", title: "Decision", enum: ["deny", "approve"] },
      digest: { type: "string", title: "Digest of what is shown", enum: [digest], default: digest },
      reason: { type: "string", title: "Reason", maxLength: MAX_REASON },
    },
    required: ["decision", "digest"],
  };
  return {
    key,
    request: elicitation(message, schema),
    answer: (content, client) => decide(service, run, wait, content, client),
  };
}

async function decide(service: McpService, run: Run, wait: Wait, content: JsonObject, client: string): Promise<void> {
  const { decision, digest, reason } = content;
  if (decision !== "approve" && decision !== "deny")
    throw new HoldfastError("input", "Cannot decide: the form's decision is neither approve nor deny; choose one");
  // The digest that was shown comes back, so that a decision is on that and on nothing else.
  if (typeof digest !== "string" || digest.length !== DIGEST_DIGITS)
    throw new HoldfastError("input", "Cannot decide: the digest of what was shown is missing; send it back");
  const request = {
    decided_by: callerOf(client),
    digest,
    ...(typeof reason === "string" && reason !== "" ? { reason: reason.slice(0, MAX_REASON) } : {}),
  };
  const { waits } = service.holdfast;
  await (decision === "approve" ? waits.approve : waits.deny)(run.run_id, wait.wait_id, request, service.session);
}

// ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

function elicitation(message: string, requestedSchema: JsonObject): Question["request"] {
  return { method: "elicitation/create", params: { mode: "form", message, requestedSchema } };
}

/** Hidden, control and bidirectional characters as their escapes, so that what is read is what is decided. */
export function visible(text: string): string {
  return text.replace(
    /(?!\n)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]|[\u{115f}\u{1160}\u{3164}\u{ffa0}]|\u{17b4}|\u{17b5}|\p{Variation_Selector}/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

function asObject(value: Json | undefined): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
}
