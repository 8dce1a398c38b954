// Owns the workflows that decisions are tried on: drawn from a seed, each with something that only a person can end.
import { type MockTool, ok, type Random, type WorldOptions } from "../../../src/testing/index.ts";
import { leaf, tool } from "../scenarios.ts";

/** Nobody can be asked about it, and policy asks before it is used. */
export const ASKED: MockTool = { name: "Charge", takes_ms: [0, 3_000], answer: () => ok(7) };
/** Policy asks before it is used, and its owner can be asked afterwards. */
const ASKED_KNOWN: MockTool = { name: "Transfer", lookup: true, takes_ms: [0, 3_000], answer: () => ok(7) };
/** A mutation without a question before it, that does not hear when it is told to stop. */
const DEAF: MockTool = { name: "Deaf", deaf: true, takes_ms: [0, 12_000], answer: () => ok(7) };
const PUT: MockTool = { name: "Put", sideEffect: "idempotent", takes_ms: [0, 3_000], answer: () => ok(7) };
const LOOK: MockTool = { name: "Look", sideEffect: "read_only", takes_ms: [0, 500], answer: () => ok(7) };
const BROKEN: MockTool = {
  name: "Broken",
  sideEffect: "read_only",
  takes_ms: [500, 6_000],
  answer: () => ({ type: "failed", kind: "execution", retryable: false, message: "the mock says that it failed" }),
};

export const ASKED_TOOLS: ReadonlySet<string> = new Set([ASKED.name, ASKED_KNOWN.name]);
const TOOLS: readonly MockTool[] = [ASKED, ASKED_KNOWN, DEAF, PUT, LOOK, BROKEN];

type Node = object;

class Drawing {
  readonly #random: Random;
  readonly #prefix: string;
  readonly steps: object[] = [];

  constructor(random: Random, prefix: string) {
    this.#random = random;
    this.#prefix = prefix;
  }

  step(more: object): Node {
    const id = `${this.#prefix}${this.steps.length + 1}`;
    const soft = this.#random.chance(0.5) ? { failure: "continue_with_error" } : {};
    this.steps.push({ id, ...soft, ...more });
    return leaf(id);
  }

  /** Something that waits for a person, most of all; else for time or a tool. */
  leaf(): Node {
    const random = this.#random;
    const deadline = this.#deadline();
    switch (random.int(8)) {
      case 0:
      case 1:
        return this.step({
          type: "approval",
          prompt: "Go on?",
          ...deadline,
          ...(random.chance(0.3) ? { outcome: "value" } : {}),
        });
      case 2:
        return this.step({ type: "input", prompt: "How many?", schema: { type: "integer" }, ...deadline });
      case 3:
        return this.step({ type: "wait", for_ms: random.pick([1, 700, 20_000]) });
      case 4:
        return this.#tool(random.pick(["Put", "Look", "Deaf"]));
      default:
        return this.#tool(random.pick(["Charge", "Transfer"]));
    }
  }

  #deadline(): object {
    const random = this.#random;
    if (!random.chance(0.4)) return {};
    const deadline_ms = random.pick([1, 500, 5_000, 40_000]);
    return { deadline_ms, ...(deadline_ms > 1 && random.chance(0.5) ? { warn_ms: 300 } : {}) };
  }

  #tool(name: string): Node {
    const { id: _, ...rest } = tool("", name) as { id: string };
    return this.step(rest);
  }

  node(depth: number, child: string | undefined): Node {
    const random = this.#random;
    if (depth === 0) return this.leaf();
    if (child !== undefined && random.chance(0.5))
      return this.step({ type: "workflow", workflow_id: child, revision: 1, args: {} });
    const nodes = Array.from({ length: random.between(2, 3) }, () => this.node(depth - 1, child));
    if (random.chance(0.15)) nodes.push(this.#tool("Broken"));
    return random.chance(0.5) ? { type: "sequence", nodes } : { type: "parallel", nodes };
  }
}

/** The world of a seed, but for its processes. */
export function worldOf(seed: number, random: Random): WorldOptions {
  const child = new Drawing(random, "c");
  const childPlan = child.node(random.int(2), undefined);
  const root = new Drawing(random, "s");
  const nests = random.chance(0.5);
  const plan = root.node(random.between(1, 2), nests ? "inner" : undefined);
  const used = root.steps.some((step) => (step as { type?: string }).type === "workflow");
  const budgets = random.chance(0.15) ? { budgets: { wall_time_ms: random.pick([2_000, 60_000]) } } : {};
  return {
    seed,
    definitions: [
      { steps: root.steps, plan, ...budgets },
      ...(used ? [{ id: "inner", steps: child.steps, plan: childPlan }] : []),
    ],
    tools: TOOLS,
    policy: {
      fingerprint: "ask",
      decide: (request) =>
        ASKED_TOOLS.has(request.target) ? { decision: "ask", reason: "it costs money" } : { decision: "allow" },
    },
  };
}
