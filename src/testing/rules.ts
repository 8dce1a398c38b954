/**
 * What must be true of every journal and every effect, whatever was killed when: small named rules, each citing the
 * text it checks. A broken rule names itself, the run and the event at fault.
 */
import type { RunEvent } from "../domain/events.ts";
import { foldLedger } from "../domain/ledger.ts";
import { isTerminal } from "../domain/run.ts";
import { evolve, initialState, isTerminalEvent, type RunState } from "../domain/state.ts";
import type { RunRecord, TreeRecord } from "../ports/index.ts";
import type { EffectLedger } from "./effects.ts";

/** A run tree as it is on the disk, and what happened outside. */
export interface TreeHistory {
  readonly tree: TreeRecord;
  /** Root first; `events` as they were read through the hash chain. */
  readonly runs: readonly { readonly record: RunRecord; readonly events: readonly RunEvent[] }[];
  readonly effects: EffectLedger;
}

export interface Violation {
  readonly rule: string;
  /** Where the rule is written. */
  readonly cites: string;
  readonly run_id?: string;
  /** Sequence of the event at fault; 0 when there is none. */
  readonly sequence: number;
  readonly event?: string;
  readonly why: string;
}

export interface Rule {
  readonly name: string;
  readonly cites: string;
  check(history: TreeHistory, report: (fault: { run_id?: string; event?: RunEvent; why: string }) => void): void;
}

export function checkRules(history: TreeHistory, rules: readonly Rule[] = JOURNAL_RULES): Violation[] {
  const found: Violation[] = [];
  for (const rule of rules)
    rule.check(history, ({ run_id, event, why }) =>
      found.push({
        rule: rule.name,
        cites: rule.cites,
        ...(run_id === undefined ? {} : { run_id }),
        sequence: event?.sequence ?? 0,
        ...(event === undefined ? {} : { event: event.type === "phase" ? `phase ${event.name}` : event.type }),
        why,
      }),
    );
  return found;
}

type Run = TreeHistory["runs"][number];

/** A rule about one journal at a time. */
function journalRule(
  name: string,
  cites: string,
  check: (run: Run, report: (event: RunEvent | undefined, why: string) => void) => void,
): Rule {
  return {
    name,
    cites,
    check: (history, report) => {
      for (const run of history.runs)
        check(run, (event, why) =>
          report({ run_id: run.record.run_id, ...(event === undefined ? {} : { event }), why }),
        );
    },
  };
}

const contiguous = journalRule("contiguous_sequences", "RP-56", ({ record, events }, report) => {
  for (const [i, event] of events.entries())
    if (event.sequence !== i + 1) return report(event, `expected sequence ${i + 1}, found ${event.sequence}`);
  if (record.last_sequence !== events.length)
    report(events.at(-1), `the run's row says ${record.last_sequence} events, the journal has ${events.length}`);
});

const legal = journalRule("legal_fold", "DESIGN §4, RP-56", ({ record, events }, report) => {
  let state = initialState(record);
  for (const event of events) {
    try {
      state = evolve(state, event);
    } catch (error) {
      return report(event, error instanceof Error ? error.message : String(error));
    }
  }
  if (state.status !== record.status)
    report(events.at(-1), `the row says ${record.status}, the journal ${state.status}`);
  if (state.waits.length !== record.wait_count)
    report(events.at(-1), `the row says ${record.wait_count} waits, the journal ${state.waits.length}`);
});

const oneEnd = journalRule("one_terminal_event", "RP-65", ({ record, events }, report) => {
  const ends = events.filter((event) => isTerminalEvent(event.type));
  if (ends.length > 1) report(ends[1], "the run ended twice");
  if (ends.length === 1 && !isTerminalEvent(events.at(-1)?.type ?? "phase"))
    report(ends[0], "something came after the end");
  if (ends.length === 0 && isTerminal(record.status))
    report(undefined, `the run is ${record.status} without an event that says so`);
});

/** What may stand in a journal at most once. */
function onceKey(event: RunEvent, visits: ReadonlyMap<string, number>): string | undefined {
  const visit = "step_id" in event ? (visits.get(event.step_id) ?? 0) : 0;
  switch (event.type) {
    case "step_queued":
    case "step_skipped":
      return `entered ${event.step_id} ${event.visit}`;
    case "step_completed":
    case "step_failed":
    case "step_cancelled":
      return `settled ${event.step_id} ${visit}`;
    case "decision":
      return `decision ${event.key}`;
    case "child_linked":
      return `child ${event.child_run_id}`;
    case "grant_issued":
      return `grant ${event.wait_id}`;
    case "wait_closed":
      return `closed ${event.wait_id}`;
    case "wait_opened":
      return `opened ${event.wait.wait_id}`;
    case "repaired":
      return `repaired ${event.wait_id}`;
    case "run_queued":
      return "run_queued";
    default:
      return undefined;
  }
}

const noDuplicates = journalRule("no_duplicate_event", "R-2, RP-56", ({ events }, report) => {
  const seen = new Map<string, number>();
  const visits = new Map<string, number>();
  for (const event of events) {
    if (event.type === "step_queued") visits.set(event.step_id, event.visit);
    const key = onceKey(event, visits);
    if (key === undefined) continue;
    const before = seen.get(key);
    if (before !== undefined) report(event, `it says again what event ${before} said (${key})`);
    else seen.set(key, event.sequence);
  }
});

const retryOnce = journalRule("retry_reserved_once", "RP-36, R-2d", ({ events }, report) => {
  const seen = new Map<string, number>();
  for (const event of events) {
    if (event.type !== "phase" || event.name !== "retry_reserved") continue;
    const before = seen.get(event.key);
    if (before !== undefined) report(event, `the retry ${event.key} was reserved at event ${before} already`);
    seen.set(event.key, event.sequence);
  }
});

const wokenRetries = journalRule("woke_is_recorded", "R-2a, events.ts", ({ record, events }, report) => {
  const delayed = new Map<string, RunEvent>();
  const woken = new Set<string>();
  for (const event of events) {
    if (event.type === "phase" && event.name === "retry_reserved" && event.due_at_ms > event.at_ms)
      delayed.set(event.key, event);
    for (const key of event.woke ?? []) {
      if (woken.has(key)) report(event, `the delay of ${key} was over before`);
      woken.add(key);
      const reserved = delayed.get(key);
      if (reserved?.type === "phase" && reserved.name === "retry_reserved" && event.at_ms < reserved.due_at_ms)
        report(event, `the delay of ${key} was over ${reserved.due_at_ms - event.at_ms} ms too early`);
    }
  }
  if (record.status !== "succeeded") return;
  for (const [key, event] of delayed)
    if (!woken.has(key)) report(event, `the run went on after the delay of ${key}, and no event says so`);
});

const sameAttempt = journalRule("recovery_keeps_the_attempt", "R-10", ({ events }, report) => {
  const steps = new Map<string, { attempt: number; fresh: boolean }>();
  for (const event of events) {
    if (event.type === "step_queued")
      steps.set(event.step_id, { attempt: steps.get(event.step_id)?.attempt ?? 0, fresh: true });
    else if (event.type === "repaired" && event.resolution === "retry") {
      const step = steps.get(event.step_id);
      if (step !== undefined) step.fresh = true;
    } else if (event.type === "step_started") {
      const step = steps.get(event.step_id);
      const before = step?.attempt ?? 0;
      if (event.attempt !== before + (step?.fresh === true ? 1 : 0))
        report(
          event,
          `attempt ${event.attempt} after ${before}${step?.fresh === true ? "" : ", and nothing began it anew"}`,
        );
      steps.set(event.step_id, { attempt: event.attempt, fresh: false });
    }
  }
});

const grants = journalRule("a_grant_serves_one_dispatch", "R-9", ({ events }, report) => {
  const asked = new Map<string, string>();
  const granted = new Set<string>();
  const used = new Set<string>();
  for (const event of events) {
    if (event.type === "step_suspended" && event.wait?.type === "tool_approval")
      asked.set(event.step_id, event.wait.wait_id);
    else if (event.type === "grant_issued") granted.add(event.wait_id);
    else if (event.type === "step_queued") asked.delete(event.step_id);
    else if (event.type === "step_started" && asked.has(event.step_id)) {
      const wait = asked.get(event.step_id) as string;
      // Sent again under the same attempt, or asked once more: no dispatch that a grant would be for.
      if (event.redispatch !== undefined || asksAgain(events, event)) continue;
      if (event.grant === undefined) report(event, `it starts after ${wait} was asked, and consumes no grant`);
      else if (event.grant !== wait || !granted.has(wait)) report(event, `the grant ${event.grant} was not given`);
      else if (used.has(wait)) report(event, `the grant ${wait} is used twice`);
      used.add(wait);
    }
  }
});

/** `step_started` followed by `step_suspended` is no intent. */
function asksAgain(events: readonly RunEvent[], started: RunEvent & { readonly type: "step_started" }): boolean {
  const next = events.slice(started.sequence).find((event) => "step_id" in event && event.step_id === started.step_id);
  return next?.type === "step_suspended" && next.wait?.type === "tool_approval";
}

const ledgerIsFold: Rule = {
  name: "ledger_is_the_fold",
  cites: "R-16",
  check({ tree, runs }, report) {
    const counted = { steps: 0, retries: 0, agents: 0, tokens: 0 };
    const states: RunState[] = [];
    for (const { record, events } of runs) {
      for (const event of events) {
        if (event.type !== "phase") continue;
        if (event.name === "step_reserved") counted.steps++;
        if (event.name === "retry_reserved") counted.retries++;
        if (event.name === "agent_reserved") counted.agents++;
        if (event.name === "agent_usage_recorded") counted.tokens += event.tokens;
      }
      states.push(fold(record, events));
    }
    const [root] = runs;
    if (root === undefined) return;
    for (const what of ["steps", "retries", "agents", "tokens"] as const)
      if (root.record.usage[what] !== counted[what])
        report({
          run_id: root.record.run_id,
          why: `the run shows ${root.record.usage[what]} ${what}, its journals ${counted[what]}`,
        });
    const ledger = foldLedger(states[0] as RunState, states);
    const kept = tree.ledger as { spent?: unknown; reserved?: unknown } | undefined;
    for (const part of ["spent", "reserved"] as const) {
      const [cached, folded] = [JSON.stringify(sorted(kept?.[part])), JSON.stringify(sorted(ledger[part]))];
      if (kept !== undefined && cached !== folded)
        report({
          run_id: root.record.run_id,
          why: `the tree's row says ${part} ${cached}, the fold of its journals ${folded}`,
        });
    }
  },
};

function sorted(value: unknown): unknown {
  return typeof value === "object" && value !== null ? Object.entries(value).sort() : value;
}

function fold(record: RunRecord, events: readonly RunEvent[]): RunState {
  let state = initialState(record);
  try {
    for (const event of events) state = evolve(state, event);
  } catch {
    // `legal_fold` names the event.
  }
  return state;
}

const withinLimits: Rule = {
  name: "within_limits",
  cites: "DESIGN §6, RP-27",
  check({ runs }, report) {
    const [root] = runs;
    if (root === undefined) return;
    const { max_steps, max_retries, max_agents, max_tokens } = fold(root.record, root.events).budget;
    const all = runs
      .flatMap(({ record, events }) => events.map((event) => ({ run_id: record.run_id, event })))
      .sort((a, b) => a.event.at_ms - b.event.at_ms);
    const spent = { steps: 0, retries: 0, agents: 0 };
    let tokens = 0;
    const reserved = new Map<string, number>();
    for (const { run_id, event } of all) {
      if (event.type !== "phase") continue;
      if (event.name === "step_reserved") spent.steps++;
      if (event.name === "retry_reserved") spent.retries++;
      if (event.name === "agent_reserved") {
        spent.agents++;
        reserved.set(`${run_id} ${event.instance}`, event.tokens ?? 0);
        const held = [...reserved.values()].reduce((sum, n) => sum + n, 0);
        if (max_tokens !== undefined && tokens + held > max_tokens)
          report({ run_id, event, why: `${tokens} tokens spent and ${held} reserved, of ${max_tokens}` });
      }
      if (event.name === "agent_usage_recorded") {
        tokens += event.tokens;
        reserved.delete(`${run_id} ${event.instance}`);
      }
      for (const [what, limit] of Object.entries({ steps: max_steps, retries: max_retries, agents: max_agents }))
        if (spent[what as keyof typeof spent] > limit)
          return report({ run_id, event, why: `more than ${limit} ${what}` });
    }
  },
};

const mutationOnce: Rule = {
  name: "no_mutation_twice",
  cites: "DESIGN §6",
  check({ effects }, report) {
    const happened = new Map<string, number>();
    for (const effect of effects.effects) {
      if (effect.side_effect === "read_only") continue;
      const count = (happened.get(effect.dispatch_id) ?? 0) + 1;
      happened.set(effect.dispatch_id, count);
      if (count > 1)
        report({
          run_id: effect.run_id,
          why: `the effect of ${effect.step_id} (${effect.tool}) happened ${count} times`,
        });
    }
    const sent = new Map<string, number>();
    const absent = new Set<string>();
    for (const call of effects.calls) {
      if (call.answer === "absent") absent.add(call.dispatch_id);
      if (call.kind !== "call" || call.side_effect !== "mutating") continue;
      const count = (sent.get(call.dispatch_id) ?? 0) + 1;
      sent.set(call.dispatch_id, count);
      if (count > 1 && !absent.has(call.dispatch_id))
        report({
          ...(call.run_id === undefined ? {} : { run_id: call.run_id }),
          why: `${call.step_id} (${call.tool}) was sent again, and nobody said that it never arrived`,
        });
      absent.delete(call.dispatch_id);
    }
  },
};

/** All of them, in the order in which a fault is the easiest to understand. */
export const JOURNAL_RULES: readonly Rule[] = [
  contiguous,
  legal,
  oneEnd,
  noDuplicates,
  retryOnce,
  wokenRetries,
  sameAttempt,
  grants,
  ledgerIsFold,
  withinLimits,
  mutationOnce,
];
