/**
 * GD-73: what is wrong with one run, by comparing its journal with itself and with what is derived from it. Pure and
 * read-only: it says what is so and what to do, and mends nothing.
 *
 * - repair_status_mismatch: rows (status, suspension, open waits) or the snapshot say otherwise than the fold.
 * - invalid_grant: a grant for another digest than was asked, or used by another step, for another input, or twice.
 * - orphaned_attempt: work that is open with nobody who could hear of its end; a child run that no step started.
 * - activation_output_mismatch: an output that does not fit its step, or is not its child's.
 * - attempt_identity_mismatch: an attempt, wait or child whose id is not the one that follows from its place.
 */

import type { RunEvent } from "../events.ts";
import { childRunId, dispatchId } from "../journal.ts";
import { canonicalJson, hashJson, type Json } from "../json.ts";
import { openSteps, suspensionOf } from "../questions.ts";
import type { RunStatus, Wait, WaitType } from "../run.ts";
import { encodeState } from "../snapshot.ts";
import { evolve, initialState, type RunState } from "../state.ts";
import type { Finding, FindingCode } from "./types.ts";

interface Asked {
  readonly wait: Wait;
  /** Of the step that asks, when it asked. */
  readonly input_hash: string;
  digest?: string;
  used?: true;
}

/** Folds a journal event by event and gathers what contradicts itself. */
export class JournalExamination {
  readonly findings: Finding[] = [];
  readonly #asked = new Map<string, Asked>();
  readonly #misfit: (stepId: string, output: Json) => string | undefined;
  #state: RunState;

  /** @param misfit why an output does not fit its step, where that is known */
  constructor(header: RunState["header"], misfit: (stepId: string, output: Json) => string | undefined) {
    this.#state = initialState(header);
    this.#misfit = misfit;
  }

  get state(): RunState {
    return this.#state;
  }

  /** @throws HoldfastError `internal` when the event does not follow from what came before */
  add(event: RunEvent): void {
    if (event.type === "step_started" && event.grant !== undefined) this.#use(event, event.grant);
    this.#state = evolve(this.#state, event);
    if (event.type === "step_started") this.#identify(event);
    else if (
      (event.type === "step_suspended" || event.type === "run_suspended" || event.type === "wait_opened") &&
      event.wait !== undefined
    )
      this.#ask(event.sequence, event.wait);
    else if (event.type === "grant_issued") this.#grant(event);
    else if (event.type === "child_linked") this.#link(event);
    else if (event.type === "step_completed") this.#complete(event);
  }

  #add(code: FindingCode, message: string, guidance: string, about: Partial<Finding>): void {
    this.findings.push({ code, message, guidance, run_id: this.#state.header.run_id, ...about });
  }

  #identify(event: Extract<RunEvent, { type: "step_started" }>): void {
    if (hashJson(event.input ?? null) === event.input_hash) return;
    const { step_id, attempt } = event;
    this.#add(
      "attempt_identity_mismatch",
      `Attempt ${attempt} of step "${step_id}" was prepared under the hash of another input.`,
      VERIFY,
      { step_id, attempt },
    );
  }

  #ask(sequence: number, wait: Wait): void {
    const step = wait.step_id === undefined ? undefined : this.#state.steps.get(wait.step_id);
    this.#asked.set(wait.wait_id, { wait, input_hash: step?.input_hash ?? "" });
    const about = { wait_id: wait.wait_id, ...(wait.step_id === undefined ? {} : { step_id: wait.step_id }) };
    if (wait.wait_id !== `w-${sequence}`)
      this.#add(
        "attempt_identity_mismatch",
        `The wait ${wait.wait_id} was opened by event ${sequence}, which is not its own.`,
        VERIFY,
        about,
      );
    if (step === undefined || wait.evidence === undefined) return;
    const { evidence } = wait;
    const dispatch_id = dispatchId(this.#state.header.run_id, step.id, step.attempts);
    if (
      evidence.dispatch_id === dispatch_id &&
      evidence.attempt === step.attempts &&
      evidence.input_hash === step.input_hash
    )
      return;
    this.#add(
      "attempt_identity_mismatch",
      `The repair of step "${step.id}" names another attempt than the one that is open.`,
      `Look for ${dispatch_id} at the tool's own records, not for what the evidence names; then repair the step.`,
      { ...about, attempt: step.attempts, dispatch_id },
    );
  }

  #grant({ wait_id, digest }: Extract<RunEvent, { type: "grant_issued" }>): void {
    const asked = this.#asked.get(wait_id);
    if (asked === undefined) return;
    asked.digest = digest;
    if (asked.wait.type === "tool_approval" && asked.wait.digest === digest) return;
    this.#invalid(asked.wait, "was given for something else than was asked");
  }

  #use({ step_id, input_hash }: Extract<RunEvent, { type: "step_started" }>, waitId: string): void {
    const asked = this.#asked.get(waitId);
    if (asked?.digest === undefined) {
      this.#add("invalid_grant", `Step "${step_id}" was sent by the grant ${waitId}, which nobody gave.`, GRANT, {
        step_id,
        wait_id: waitId,
      });
      return;
    }
    if (asked.wait.step_id !== step_id) this.#invalid(asked.wait, `was used by step "${step_id}"`);
    else if (asked.input_hash !== input_hash) this.#invalid(asked.wait, "was used for another input");
    else if (asked.used === true) this.#invalid(asked.wait, "was used twice");
    asked.used = true;
  }

  #invalid(wait: Wait, what: string): void {
    this.#add("invalid_grant", `The grant ${wait.wait_id} of step "${wait.step_id ?? "?"}" ${what}.`, GRANT, {
      wait_id: wait.wait_id,
      ...(wait.step_id === undefined ? {} : { step_id: wait.step_id }),
    });
  }

  #link({ step_id, child_run_id }: Extract<RunEvent, { type: "child_linked" }>): void {
    const { run_id, root_run_id } = this.#state.header;
    const attempt = this.#state.steps.get(step_id)?.attempts ?? 1;
    if (childRunId(root_run_id, run_id, step_id, attempt) === child_run_id) return;
    this.#add(
      "attempt_identity_mismatch",
      `Step "${step_id}" is linked with the run ${child_run_id}, which is not the one that its place makes.`,
      VERIFY,
      { step_id, attempt },
    );
  }

  #complete({ step_id, output }: Extract<RunEvent, { type: "step_completed" }>): void {
    const misfit = this.#misfit(step_id, output);
    if (misfit === undefined) return;
    this.#add(
      "activation_output_mismatch",
      `The output of step "${step_id}" does not fit what the step must give ${misfit}.`,
      "See the step with: holdfast show RUN --step STEP; what follows it was made from this output.",
      { step_id },
    );
  }
}

const VERIFY = "Prove the journal with: holdfast verify RUN; keep a copy with: holdfast export RUN.";
const GRANT = "Find out what was sent under it before the run goes on; pause or cancel the run meanwhile.";
const ROWS =
  "The journal is the truth. Nothing of it is lost; lists and the inbox show this run wrongly until it is next written: resume, pause or cancel it.";

/** What the store derives from a journal, and what it knows beside it. */
export interface DerivedRows {
  readonly status: RunStatus;
  readonly suspension?: WaitType;
  readonly wait_count: number;
  readonly last_sequence: number;
  readonly waits: readonly Wait[];
  /** Whether a process that lives has the tree's lease. */
  readonly held: boolean;
  /** The snapshot and the fold at the same sequence. */
  readonly snapshot?: { readonly stored: RunState; readonly folded: RunState };
  /** Child runs that steps name and that are not there. */
  readonly missing: readonly string[];
  /** Runs whose parent this one is, or that its steps name. */
  readonly children: readonly { readonly run_id: string; readonly parent_step_id?: string; readonly output?: Json }[];
}

/** Compares a folded run with what is derived from it. */
export function examineRows(state: RunState, rows: DerivedRows): Finding[] {
  return [
    ...wrongRow(state, rows),
    ...wrongWaits(state, rows),
    ...wrongSnapshot(state, rows),
    ...orphans(state, rows),
    ...wrongChildren(state, rows),
  ];
}

function finding(
  state: RunState,
  code: FindingCode,
  message: string,
  guidance: string,
  about: Partial<Finding> = {},
): Finding {
  return { code, message, guidance, run_id: state.header.run_id, ...about };
}

function wrongRow(state: RunState, rows: DerivedRows): Finding[] {
  const wrong = [
    ["status", rows.status, state.status],
    ["suspension", rows.suspension ?? "none", suspensionOf(state)?.type ?? "none"],
    ["number of waits", rows.wait_count, state.waits.length],
    ["last sequence", rows.last_sequence, state.last_sequence],
  ].filter(([, stored, folded]) => stored !== folded);
  if (wrong.length === 0) return [];
  const text = wrong.map(([name, stored, folded]) => `${name} ${stored} instead of ${folded}`).join(", ");
  return [finding(state, "repair_status_mismatch", `The run's row says ${text}.`, ROWS)];
}

function wrongWaits(state: RunState, rows: DerivedRows): Finding[] {
  const stored = new Map(rows.waits.map((wait) => [wait.wait_id, wait]));
  const wrong: Finding[] = [];
  const tell = (wait: Wait, what: string): void =>
    void wrong.push(
      finding(state, "repair_status_mismatch", `The ${wait.type} wait ${wait.wait_id} ${what}.`, ROWS, {
        wait_id: wait.wait_id,
        ...(wait.step_id === undefined ? {} : { step_id: wait.step_id }),
      }),
    );
  for (const wait of state.waits) {
    const row = stored.get(wait.wait_id);
    stored.delete(wait.wait_id);
    if (row === undefined) tell(wait, "is open and has no row, so the inbox does not show it");
    else if (canonicalJson(row as unknown as Json) !== canonicalJson(wait as unknown as Json))
      tell(wait, "is not what its row says");
  }
  for (const wait of stored.values()) tell(wait, "has a row and is not open");
  return wrong;
}

function wrongSnapshot(state: RunState, { snapshot }: DerivedRows): Finding[] {
  if (snapshot === undefined) return [];
  const { stored, folded } = snapshot;
  if (canonicalJson(encodeState(stored)) === canonicalJson(encodeState(folded))) return [];
  const about =
    "The snapshot is a cache: resume, pause or cancel the run to have it written anew, and do not trust what is shown until then.";
  const wrong: Finding[] = [];
  for (const step of folded.steps.values()) {
    const other = stored.steps.get(step.id);
    if (canonicalJson((other?.output ?? null) as Json) !== canonicalJson((step.output ?? null) as Json))
      wrong.push(
        finding(
          state,
          "activation_output_mismatch",
          `The snapshot has another output of step "${step.id}" than the journal.`,
          about,
          { step_id: step.id },
        ),
      );
    else if (other?.attempts !== step.attempts || other.input_hash !== step.input_hash)
      wrong.push(
        finding(
          state,
          "attempt_identity_mismatch",
          `The snapshot has another attempt of step "${step.id}" than the journal.`,
          about,
          { step_id: step.id, attempt: step.attempts },
        ),
      );
  }
  return wrong.length > 0
    ? wrong
    : [finding(state, "repair_status_mismatch", "The snapshot says otherwise than the journal.", about)];
}

function orphans(state: RunState, { held }: DerivedRows): Finding[] {
  if (held || state.status !== "running") return [];
  const { run_id } = state.header;
  const guidance = `Nobody hears of its end: take the run over with: holdfast resume ${run_id}, or start a worker process; what may be repeated is sent again, a mutation that cannot be looked up becomes a repair.`;
  const open = openSteps(state, ["running"]).filter((step) => step.child_run_id === undefined);
  if (open.length === 0)
    return [finding(state, "orphaned_attempt", "The run is running and no process drives it.", guidance)];
  return open.map((step) =>
    finding(
      state,
      "orphaned_attempt",
      `Attempt ${step.attempts} of step "${step.id}" is open and no process drives its run.`,
      guidance,
      {
        step_id: step.id,
        attempt: step.attempts,
        dispatch_id: dispatchId(run_id, step.id, step.attempts),
      },
    ),
  );
}

function wrongChildren(state: RunState, { children, missing }: DerivedRows): Finding[] {
  const wrong: Finding[] = [];
  const found = new Map(children.map((child) => [child.run_id, child]));
  for (const step of state.steps.values()) {
    if (step.child_run_id === undefined) continue;
    const child = found.get(step.child_run_id);
    const about = { step_id: step.id, attempt: step.attempts };
    if (missing.includes(step.child_run_id))
      wrong.push(
        finding(
          state,
          "activation_output_mismatch",
          `The child run ${step.child_run_id} of step "${step.id}" is missing.`,
          "Restore the store from a backup; the step's outcome cannot be proved without it.",
          about,
        ),
      );
    else if (
      child !== undefined &&
      step.status === "succeeded" &&
      canonicalJson(child.output ?? null) !== canonicalJson(step.output ?? null)
    )
      wrong.push(
        finding(
          state,
          "activation_output_mismatch",
          `The output of step "${step.id}" is not that of its child run ${step.child_run_id}.`,
          VERIFY,
          about,
        ),
      );
  }
  for (const child of children) {
    if (child.parent_step_id !== undefined && state.steps.has(child.parent_step_id)) continue;
    wrong.push(
      finding(
        state,
        "orphaned_attempt",
        `The child run ${child.run_id} belongs to no step of this run.`,
        `Nothing waits for it; end it with: holdfast cancel ${child.run_id}.`,
      ),
    );
  }
  return wrong;
}
