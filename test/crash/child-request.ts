// Owns what the tests tell a child process.
export interface ChildRequest {
  /** `start`: begin and follow; `serve`: be a worker process; `finish`: recover, answer what is asked, end the run. */
  readonly act: "start" | "serve" | "finish";
  readonly folder: string;
  readonly workflow?: string;
  readonly key?: string;
  /** Gone just before or after this write; `stop` stands still before it, as under SIGSTOP. */
  readonly die?: { readonly write: number; readonly when: "before" | "after"; readonly how?: "kill" | "stop" };
  /** Ends with this status right after the commit that holds `step_completed` of this step. */
  readonly exit_after?: { readonly step: string; readonly status: number };
  readonly lease_ms?: number;
  readonly recovery?: "auto" | "manual";
  readonly durability?: "standard" | "strict";
}

/** A step that was given a slow tool ends when this file appears in the folder. */
export const GO = "go";
