/** Static checks of references (RP-5): what is available where, and whether the declared schemas hold what is read. */
import { didYouMean, type Path } from "../schema/index.ts";
import type { Plan, Problem, Schema, Step, ValueRef } from "./definition.ts";
import {
  childPaths,
  conditionSource,
  nodeId,
  nodeReferences,
  type PlacedReference,
  stepReferences,
} from "./references.ts";
import {
  contradicts,
  DECISION_SCHEMA,
  isBoolean,
  itemOf,
  ofSchema,
  partAt,
  type StaticValue,
  sameValue,
  UNKNOWN,
} from "./static-value.ts";
import { describe } from "./template.ts";

export interface BindingInput {
  readonly inputSchema: Schema;
  readonly plan: Plan;
  readonly planPath: Path;
  /** Declared steps with their places. */
  readonly steps: ReadonlyMap<string, { readonly step: Step; readonly path: Path }>;
  /** References that were reported already, as parts of cycles. */
  readonly skip: ReadonlySet<ValueRef>;
}

export interface Bindings {
  readonly problems: readonly Problem[];
  /** What each reference that passed will read, for the nested input contract (RP-13). */
  readonly values: ReadonlyMap<ValueRef, StaticValue>;
}

export function checkBindings(input: BindingInput): Bindings {
  const checker = new Checker(input);
  checker.visit(input.plan, input.planPath, new Scope());
  return checker;
}

/** What is visible at a place: everything of the scopes around it, and what has run in its own. */
class Scope {
  readonly own = new Map<string, StaticValue>();
  readonly #items = new Map<string, StaticValue>();
  readonly #around: Scope | undefined;

  constructor(around?: Scope) {
    this.#around = around;
  }

  step(id: string): StaticValue | undefined {
    return this.own.get(id) ?? this.#around?.step(id);
  }

  item(name: string): StaticValue | undefined {
    return this.#items.get(name) ?? this.#around?.item(name);
  }

  withItem(name: string, value: StaticValue): Scope {
    const inner = new Scope(this);
    inner.#items.set(name, value);
    return inner;
  }

  itemNames(): string[] {
    return [...this.#items.keys(), ...(this.#around?.itemNames() ?? [])];
  }
}

class Checker implements Bindings {
  readonly problems: Problem[] = [];
  readonly values = new Map<ValueRef, StaticValue>();
  readonly #input: BindingInput;
  readonly #places: ReadonlyMap<string, readonly Plan[]>;

  constructor(input: BindingInput) {
    this.#input = input;
    this.#places = placesOf(input.plan);
  }

  /** Checks a node and all below it; returns what is known of its value, and adds what it makes visible to the scope. */
  visit(node: Plan, path: Path, scope: Scope): StaticValue {
    const value = this.#value(node, path, scope);
    const id = nodeId(node);
    if (id !== undefined) scope.own.set(id, value);
    return value;
  }

  #value(node: Plan, path: Path, scope: Scope): StaticValue {
    switch (node.type) {
      case "step": {
        const declared = this.#input.steps.get(node.step);
        if (declared === undefined) return UNKNOWN;
        for (const placed of stepReferences(declared.step, declared.path)) this.#check(placed, scope, node.step);
        return stepValue(declared.step);
      }
      case "sequence":
        return childPaths(node, path).reduce((_last, [child, at]) => this.visit(child, at, scope), UNKNOWN);
      case "retry":
        return this.visit(node.node, [...path, "node"], scope);
      case "parallel":
        return this.#parallel(node, path, scope);
      case "choice":
        return this.#choice(node, path, scope);
      case "map":
        return this.#map(node, path, scope);
    }
  }

  /** Siblings never see each other; afterwards everything is visible. */
  #parallel(node: Extract<Plan, { type: "parallel" }>, path: Path, scope: Scope): StaticValue {
    const branches = childPaths(node, path).map(([child, at]) => {
      const inner = new Scope(scope);
      return { value: this.visit(child, at, inner), inner };
    });
    for (const { inner } of branches) for (const [id, value] of inner.own) scope.own.set(id, value);
    return { kind: "tuple", items: branches.map(({ value }) => value) };
  }

  /** Each step stands in one place, so that no step is in both branches: nothing of them is visible afterwards. */
  #choice(node: Extract<Plan, { type: "choice" }>, path: Path, scope: Scope): StaticValue {
    for (const placed of nodeReferences(node, path)) this.#check(placed, scope, node.id);
    this.#checkCondition(node, path);
    const then_value = this.visit(node.then_branch, [...path, "then_branch"], new Scope(scope));
    const else_value = this.visit(node.else_branch, [...path, "else_branch"], new Scope(scope));
    return sameValue(then_value, else_value) ? then_value : UNKNOWN;
  }

  #checkCondition(node: Extract<Plan, { type: "choice" }>, path: Path): void {
    if (node.condition.from === "test") return;
    const source = conditionSource(node.condition);
    const value = source.from === "object" ? UNKNOWN : this.values.get(source);
    if (value === undefined || isBoolean(value)) return;
    const found = value.kind === "literal" ? "the literal is not a boolean" : "its schema does not say type: boolean";
    this.#error(
      [...path, "condition"],
      `Cannot choose by ${describe(source)}: ${found}; read a boolean, or use {from: test, of, predicate}`,
    );
  }

  #map(node: Extract<Plan, { type: "map" }>, path: Path, scope: Scope): StaticValue {
    for (const placed of nodeReferences(node, path)) this.#check(placed, scope, node.id);
    const source = node.source.from === "object" ? UNKNOWN : this.values.get(node.source);
    const item = source === undefined ? UNKNOWN : itemOf(source);
    if (item === undefined) {
      const found = source?.kind === "literal" ? "the literal is not an array" : "its schema declares no `items`";
      this.#error(
        [...path, "source"],
        `Cannot map over ${describe(node.source)}: ${found}; give the schema {type: array, items: …}`,
      );
    }
    const body = this.visit(node.body, [...path, "body"], scope.withItem(node.item, item ?? UNKNOWN));
    return { kind: "array", item: body };
  }

  #check({ reference, path }: PlacedReference, scope: Scope, reader: string | undefined): void {
    if (this.#input.skip.has(reference)) return;
    switch (reference.from) {
      case "literal":
        this.values.set(reference, { kind: "literal", value: reference.value });
        return;
      case "object":
        return;
      case "args":
        return this.#pointed(
          reference,
          ofSchema(this.#input.inputSchema),
          reference.pointer ?? "",
          path,
          "input_schema",
        );
      case "item":
        return this.#checkItem(reference, path, scope);
      case "step":
        return this.#checkStep(reference, path, scope, reader);
    }
  }

  #checkItem(reference: Extract<ValueRef, { from: "item" }>, path: Path, scope: Scope): void {
    const item = scope.item(reference.name);
    if (item === undefined) {
      const message = `Cannot read item "${reference.name}" here: no map around this place has that item name; use it only inside the map's body`;
      return this.#error([...path, "name"], message, didYouMean(reference.name, scope.itemNames()));
    }
    const pointer = reference.pointer ?? "";
    const part = partAt(item, pointer);
    if (part !== undefined) this.values.set(reference, part);
    else if (contradicts(item, pointer)) this.#noPart(reference, pointer, path, "the `items` of the map's source");
    else this.values.set(reference, UNKNOWN);
  }

  #checkStep(
    reference: Extract<ValueRef, { from: "step" }>,
    path: Path,
    scope: Scope,
    reader: string | undefined,
  ): void {
    const value = scope.step(reference.step);
    if (value === undefined) return this.#unavailable(reference, path, reader);
    if (value.kind === "unknown") {
      const message = this.#input.steps.has(reference.step)
        ? `Cannot read ${describe(reference)}: that step declares no output_schema; add one with what is read here`
        : `Cannot read ${describe(reference)}: its branches have no schema in common; give both the same output_schema`;
      return this.#error([...path, "step"], message);
    }
    this.#pointed(reference, value, reference.pointer ?? "", path, `the output_schema of "${reference.step}"`);
  }

  #pointed(reference: ValueRef, value: StaticValue, pointer: string, path: Path, where: string): void {
    const part = partAt(value, pointer);
    if (part === undefined) return this.#noPart(reference, pointer, path, where);
    this.values.set(reference, part);
  }

  #noPart(reference: ValueRef, pointer: string, path: Path, where: string): void {
    const message = `Cannot read ${describe(reference)}: ${where} does not declare "${pointer}"; correct the pointer or add it to the schema`;
    this.#error([...path, "pointer"], message);
  }

  #unavailable(reference: Extract<ValueRef, { from: "step" }>, path: Path, reader: string | undefined): void {
    const { step } = reference;
    if (!this.#places.has(step)) {
      return this.#error(
        [...path, "step"],
        `Cannot read step "${step}": there is no such step; correct the name`,
        didYouMean(step, this.#places.keys()),
      );
    }
    this.#error([...path, "step"], `Cannot read step "${step}" here: ${this.#why(step, reader)}`);
  }

  /** What hides a step that is in the plan and not later than its reader. */
  #why(step: string, reader: string | undefined): string {
    const target = this.#places.get(step) ?? [];
    const around = new Set(reader === undefined ? [] : (this.#places.get(reader) ?? []));
    const hiding = target.slice(0, -1).filter((node) => !around.has(node));
    const common = target.filter((node) => around.has(node)).at(-1);
    if (hiding.some((node) => node.type === "map"))
      return "it runs once for each member of a map; give the map an id and read that";
    if (hiding.some((node) => node.type === "choice"))
      return "it runs only if its branch is chosen; give the choice an id and read that";
    if (common?.type === "choice")
      return "it is in the other branch of the choice, so that only one of the two runs; read an earlier step";
    if (common?.type === "parallel") return "it runs beside this one in a parallel; place them in a sequence";
    return "it has not certainly run before; place it earlier";
  }

  #error(path: Path, message: string, more: { hint?: string } = {}): void {
    this.problems.push({ path, code: "binding", message, severity: "error", ...more });
  }
}

/** What is known of a step's output (RP-5, R-28). */
export function stepValue(step: Step): StaticValue {
  switch (step.type) {
    case "approval":
      return ofSchema(DECISION_SCHEMA);
    case "input":
      return ofSchema(step.schema);
    case "wait":
      return ofSchema({ type: "null" });
    default:
      return ofSchema(step.output_schema);
  }
}

/** Each name with the nodes from the root down to it. */
function placesOf(plan: Plan): Map<string, readonly Plan[]> {
  const out = new Map<string, readonly Plan[]>();
  const visit = (node: Plan, around: readonly Plan[]): void => {
    const places = [...around, node];
    const id = nodeId(node);
    if (id !== undefined) out.set(id, places);
    for (const [child] of childPaths(node, [])) visit(child, places);
  };
  visit(plan, []);
  return out;
}
