/** What really happened outside: every call of a tool and every effect it had, whatever the journals say. */
import { hashJson, type Json } from "../domain/json.ts";
import type { SideEffect } from "../domain/run.ts";
import type { ToolCall } from "../ports/index.ts";

/** A tool was called, looked up or observed. */
export interface RecordedCall {
  readonly kind: "call" | "lookup" | "observe";
  readonly tool: string;
  readonly side_effect: SideEffect;
  readonly dispatch_id: string;
  readonly at_ms: number;
  /** Process that asked. */
  readonly process: string;
  readonly run_id?: string;
  readonly step_id?: string;
  readonly attempt?: number;
  readonly redispatch?: number;
  /** What the owner answered to a look-up. */
  readonly answer?: string;
}

/** Something outside changed, or for a read_only tool: was read. */
export interface Effect {
  readonly tool: string;
  readonly side_effect: SideEffect;
  readonly run_id: string;
  readonly step_id: string;
  readonly attempt: number;
  readonly dispatch_id: string;
  /** The same for the same work in another run: tool, place and input. */
  readonly key: string;
  readonly output: Json;
  readonly at_ms: number;
  readonly process: string;
}

export class EffectLedger {
  readonly calls: RecordedCall[] = [];
  readonly effects: Effect[] = [];

  record(call: RecordedCall): void {
    this.calls.push(call);
  }

  happened(call: ToolCall, facts: { side_effect: SideEffect; output: Json; at_ms: number; process: string }): void {
    this.effects.push({
      ...facts,
      tool: call.tool,
      run_id: call.run_id,
      step_id: call.step_id,
      attempt: call.attempt,
      dispatch_id: call.dispatch_id,
      key: `${call.tool} ${call.step_id} ${hashJson(call.input).slice(0, 12)}`,
    });
  }

  /** What the owner of the effect answers when it is asked about a dispatch. */
  outcomeOf(dispatchId: string): Effect | undefined {
    return this.effects.find((effect) => effect.dispatch_id === dispatchId);
  }

  /** How often each thing happened, by key; `read_only` work may repeat and is left out. */
  counts(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const effect of this.effects)
      if (effect.side_effect !== "read_only") counts.set(effect.key, (counts.get(effect.key) ?? 0) + 1);
    return counts;
  }

  countOf(tool: string): number {
    return this.effects.filter((effect) => effect.tool === tool).length;
  }
}
