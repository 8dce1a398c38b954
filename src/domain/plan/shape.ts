/**
 * The closed key sets of a plan document (RP §2, R-28, R-31, R-32), once: the compiler reads documents by these
 * tables and `holdfast schema plan` is made from them, so that the two cannot drift.
 */
import { RETRY_BOUNDS, RETRY_KINDS } from "../backoff.ts";
import type { Json } from "../json.ts";
import { DEFAULT_BUDGETS } from "../run.ts";
import { DEFAULT_INVOCATION_POLICY } from "./definition.ts";

/** What a key's value is; `read.ts` checks each kind and `editor-schema.ts` describes it. */
export type FieldType =
  | { readonly is: "text" }
  | { readonly is: "note" }
  | { readonly is: "integer"; readonly min: number; readonly max?: number }
  | { readonly is: "boolean" }
  | { readonly is: "one_of"; readonly values: readonly string[] }
  | { readonly is: "texts" }
  /** At least one of the values, none of them twice. */
  | { readonly is: "some_of"; readonly values: readonly string[] }
  | { readonly is: "resource" }
  | { readonly is: "schema" | "input_schema" }
  | { readonly is: "template" | "literal" | "fields" }
  | { readonly is: "pointer" }
  | { readonly is: "reference" | "condition" | "predicate" }
  | { readonly is: "duration" | "moment" }
  | { readonly is: "plan" | "plans" | "steps" }
  | { readonly is: "object"; readonly what: string; readonly shape: Shape }
  | { readonly is: "objects"; readonly what: string; readonly shape: Shape; readonly most: number };

export interface Field {
  readonly type: FieldType;
  readonly required?: true;
  /** Value of a key that is absent; a key without one is left out. */
  readonly fill?: Json;
  readonly description: string;
}

export type Shape = { readonly [key: string]: Field };

export const PLAN_LIMITS = {
  /** Characters of an id or a name. */
  name: 256,
  /** JSON values of one definition. */
  nodes: 1_000_000,
  /** Steps of one definition. */
  steps: 100_000,
  /** Claims of one step, and UTF-8 bytes of a resource's name (GD-53). */
  claims: 64,
  resource_bytes: 512,
} as const;

const TEXT = { is: "text" } as const;
const POINTER: Field = {
  type: { is: "pointer" },
  fill: "",
  description: "JSON pointer into the value, such as `/files/0`; empty for the whole value.",
};

export const BUDGET_SHAPE: Shape = {
  max_concurrency: {
    type: { is: "integer", min: 1 },
    fill: DEFAULT_BUDGETS.max_concurrency,
    description: "How many tools and agents may work at the same time.",
  },
  max_steps: {
    type: { is: "integer", min: 1 },
    fill: DEFAULT_BUDGETS.max_steps,
    description: "How many step attempts the run may make, retries and map items included.",
  },
  max_agents: {
    type: { is: "integer", min: 0 },
    fill: DEFAULT_BUDGETS.max_agents,
    description: "How many agent attempts the run may make; never more than `max_steps`.",
  },
  max_retries: {
    type: { is: "integer", min: 0 },
    fill: DEFAULT_BUDGETS.max_retries,
    description: "How many retries the run may make.",
  },
  max_nesting_depth: {
    type: { is: "integer", min: 1 },
    fill: DEFAULT_BUDGETS.max_nesting_depth,
    description: "How deep workflows may be nested; 1 allows no nested workflow.",
  },
  on_exhausted: {
    type: { is: "one_of", values: ["fail", "suspend"] },
    description: "What a used-up limit does: `fail` (default), or `suspend` the run until someone raises it.",
  },
  wall_time_ms: {
    type: { is: "integer", min: 1 },
    fill: DEFAULT_BUDGETS.wall_time_ms,
    description: "How long the run may take, in milliseconds.",
  },
  max_tokens: { type: { is: "integer", min: 0 }, description: "How many model tokens the run may spend." },
  max_cost_micros: {
    type: { is: "integer", min: 0 },
    description: "How much the run may cost, in millionths of a currency unit.",
  },
};

export const POLICY_SHAPE: Shape = {
  explicit: { type: { is: "boolean" }, fill: false, description: "May be started by people and programs." },
  automatic: { type: { is: "boolean" }, fill: false, description: "May be started by a model through a tool." },
};

/** Catalog data, stripped before hashing. */
export const HEADER_SHAPE: Shape = {
  title: { type: { is: "note" }, description: "Short name shown to people." },
  description: { type: { is: "note" }, description: "What the workflow does, shown to people and to agents." },
  labels: { type: { is: "texts" }, description: "Words to find the workflow by." },
  invocation_policy: {
    type: { is: "object", what: "an invocation policy", shape: POLICY_SHAPE },
    fill: { ...DEFAULT_INVOCATION_POLICY },
    description: "Who may start the workflow. A key that is left out of it means no.",
  },
};

/** In the order of RP-1, which is the order in which faults are reported. */
export const ROOT_SHAPE: Shape = {
  workflow_schema: {
    type: { is: "integer", min: 1, max: 1 },
    required: true,
    description: "Version of this format: 1.",
  },
  id: {
    type: TEXT,
    required: true,
    description: "Name of the workflow: lower-case words joined by `-` or `_`, at most 54 characters.",
  },
  revision: { type: { is: "integer", min: 1 }, required: true, description: "Raised whenever the workflow changes." },
  ...HEADER_SHAPE,
  budgets: {
    type: { is: "object", what: "budgets", shape: BUDGET_SHAPE },
    fill: {},
    description: "What a run may use up. Nested workflows share the root's.",
  },
  input_schema: {
    type: { is: "input_schema" },
    fill: { type: "object", additionalProperties: true },
    description: "Schema of the run's arguments.",
  },
  output_schema: { type: { is: "schema" }, description: "Schema of the run's output." },
  steps: { type: { is: "steps" }, required: true, description: "The units of work, each placed once in `plan`." },
  plan: { type: { is: "plan" }, required: true, description: "The order in which the steps run." },
};

const STEP_ID: Field = {
  type: TEXT,
  required: true,
  description: "Name of the step, unique in the workflow.",
};
const FAILURE: Field = {
  type: { is: "one_of", values: ["fail_fast", "continue_with_error", "skip_dependents"] },
  fill: "fail_fast",
  description:
    'What a failure does: `fail_fast` stops, `continue_with_error` goes on with {"error": …} as the value, `skip_dependents` skips what follows.',
};
const OUTPUT_SCHEMA: Field = {
  type: { is: "schema" },
  description: "Schema that the output must fit. Filled from the tool or agent where it declares one.",
};
const CAPABILITIES: Field = {
  type: { is: "texts" },
  fill: [],
  description:
    "What the step asks for: `read`, `write`, `shell`, `network`, `agent`, or one of your own. Asking never grants.",
};
const TIMEOUT: Field = {
  type: { is: "integer", min: 1 },
  description: "How long one attempt may take, in milliseconds.",
};
const ARGS: Field = {
  type: { is: "template" },
  fill: null,
  description: "Arguments; references in it are replaced by values.",
};
export const CLAIM_SHAPE: Shape = {
  resource: {
    type: { is: "resource" },
    required: true,
    description: "Name of the resource, shared by all runs of the workspace, or a reference to it.",
  },
  access: {
    type: { is: "one_of", values: ["read", "write"] },
    fill: "write",
    description: "`write` excludes all others, `read` only those that write.",
  },
};
export const RETRY_SHAPE: Shape = {
  version: { type: between(RETRY_BOUNDS.version), fill: 1, description: "Version of this policy: 1." },
  max_attempts: {
    type: between(RETRY_BOUNDS.max_attempts),
    required: true,
    description: "How often at most, the first try included.",
  },
  eligible_failures: {
    type: { is: "some_of", values: RETRY_KINDS },
    fill: RETRY_KINDS,
    description: "Which failures are tried again; both kinds unless given.",
  },
  initial_backoff_ms: {
    type: between(RETRY_BOUNDS.initial_backoff_ms),
    fill: 1_000,
    description: "Wait before the second try, in milliseconds.",
  },
  backoff_multiplier: {
    type: between(RETRY_BOUNDS.backoff_multiplier),
    fill: 2,
    description: "By how much each further wait is longer than the one before.",
  },
  maximum_backoff_ms: {
    type: between(RETRY_BOUNDS.maximum_backoff_ms),
    fill: 60_000,
    description: "The longest wait, in milliseconds; not less than `initial_backoff_ms`.",
  },
};

function between([min, max]: readonly [number, number]): FieldType {
  return { is: "integer", min, max };
}

const WAIT_FOR_PERSON: Shape = {
  details: { type: { is: "template" }, description: "What the person needs to see; may hold references." },
  deadline_ms: {
    type: { is: "integer", min: 1 },
    description: "How long the answer may take, in milliseconds. Silence never consents: past it the step fails.",
  },
  warn_ms: {
    type: { is: "integer", min: 1 },
    description: "When a warning is sent, in milliseconds; less than `deadline_ms`.",
  },
};
const PROMPT: Field = { type: TEXT, required: true, description: "The question, in words." };

/** Keys that every step has besides those of its type. */
export const STEP_COMMON: Shape = { id: STEP_ID, failure: FAILURE };

export const STEP_SHAPES = {
  tool: {
    tool: { type: TEXT, required: true, description: "Name of the tool." },
    args: ARGS,
    capabilities: CAPABILITIES,
    timeout_ms: TIMEOUT,
    resources: {
      type: { is: "objects", what: "a claim", shape: CLAIM_SHAPE, most: PLAN_LIMITS.claims },
      description: "What it needs of the workspace while it is at work; it waits until nobody else holds it.",
    },
    retry: {
      type: { is: "object", what: "a retry policy", shape: RETRY_SHAPE },
      description: "How the step is tried again by itself, with growing waits.",
    },
    output_schema: OUTPUT_SCHEMA,
  },
  agent: {
    agent: { type: TEXT, required: true, description: "Name of the agent." },
    prompt: {
      type: { is: "template" },
      required: true,
      description: "What the agent is asked; references in it are replaced by values.",
    },
    model: { type: TEXT, description: "Model to use in place of the agent's own." },
    effort: { type: TEXT, description: "How much the model should think." },
    capabilities: CAPABILITIES,
    structured_output_attempts: {
      type: { is: "integer", min: 1, max: 8 },
      fill: 2,
      description: "How often the agent is asked until its output fits the schema.",
    },
    timeout_ms: TIMEOUT,
    output_schema: OUTPUT_SCHEMA,
  },
  workflow: {
    workflow_id: { type: TEXT, required: true, description: "Id of the nested workflow." },
    revision: { type: { is: "integer", min: 1 }, required: true, description: "Its revision." },
    args: ARGS,
    output_schema: OUTPUT_SCHEMA,
  },
  approval: {
    prompt: PROMPT,
    ...WAIT_FOR_PERSON,
    outcome: {
      type: { is: "one_of", values: ["value"] },
      description: "`value`: a refusal is a value to choose by (`/approved`), not a failure.",
    },
  },
  input: {
    prompt: PROMPT,
    schema: { type: { is: "schema" }, required: true, description: "Schema that the answer must fit." },
    ...WAIT_FOR_PERSON,
  },
  wait: {
    for_ms: { type: { is: "duration" }, description: "How long to wait, in milliseconds, or a reference to it." },
    until: {
      type: { is: "moment" },
      description: "When to go on: RFC 3339 text, milliseconds since 1970, or a reference to either.",
    },
  },
} as const satisfies Record<string, Shape>;

const COMPOSITE_ID: Field = { type: TEXT, description: "Name by which later steps may read the value." };
const NODES: Field = { type: { is: "plans" }, required: true, description: "The parts, at least one." };

export const PLAN_SHAPES = {
  step: { step: { type: TEXT, required: true, description: "Id of the step to run." } },
  sequence: { nodes: NODES },
  parallel: { id: COMPOSITE_ID, nodes: NODES },
  choice: {
    id: COMPOSITE_ID,
    condition: {
      type: { is: "condition" },
      required: true,
      description: "What decides: a boolean, or a test of a value.",
    },
    then_branch: { type: { is: "plan" }, required: true, description: "Runs when the condition holds." },
    else_branch: { type: { is: "plan" }, required: true, description: "Runs when it does not." },
  },
  map: {
    id: COMPOSITE_ID,
    source: { type: { is: "reference" }, required: true, description: "The array whose members are worked on." },
    item: { type: TEXT, required: true, description: "Name by which the body reads its member." },
    body: { type: { is: "plan" }, required: true, description: "Runs once for each member." },
  },
  retry: {
    node: { type: { is: "plan" }, required: true, description: "What is tried again after a failure that may pass." },
    max_attempts: {
      type: { is: "integer", min: 1 },
      required: true,
      description: "How often at most, the first try included.",
    },
    delay_ms: { type: { is: "integer", min: 0 }, fill: 0, description: "Wait between two tries, in milliseconds." },
  },
} as const satisfies Record<string, Shape>;

export const REFERENCE_SHAPES = {
  args: { pointer: POINTER },
  step: {
    step: {
      type: TEXT,
      required: true,
      description: "Id of an earlier step, or of an earlier map, parallel or choice.",
    },
    pointer: POINTER,
  },
  item: { name: { type: TEXT, required: true, description: "Item name of the map around." }, pointer: POINTER },
  literal: { value: { type: { is: "literal" }, required: true, description: "A value, taken as it stands." } },
  object: {
    fields: {
      type: { is: "fields" },
      required: true,
      description: "Members of the object to build; the way to have a member called `from`.",
    },
  },
} as const satisfies Record<string, Shape>;

/** A choice's condition may also be a test. */
export const TEST_SHAPE: Shape = {
  of: { type: { is: "reference" }, required: true, description: "The value to test." },
  predicate: { type: { is: "predicate" }, required: true, description: "The test: an operation and what it compares." },
};

/** Ids that get a typed tool; others are legal, with a warning. */
export const TYPED_ID = /^[a-z][a-z0-9]*([_-][a-z0-9]+)*$/;
export const TYPED_ID_LENGTH = 54;
