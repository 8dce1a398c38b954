/**
 * Every workload in the order of the table, and the work that is done in processes of their own. W5 and W6 measure
 * recovery and timers (issue B), all others what issue A has.
 */
import type { ChildWork } from "../child.ts";
import type { Workload } from "../measure.ts";
import { asleep, sleep } from "./asleep.ts";
import { grow, growth } from "./growth.ts";
import { httpStarts } from "./http.ts";
import { manyRuns } from "./many-runs.ts";
import { hold, recover, recoverFloor, recovery } from "./recovery.ts";
import { sequential } from "./sequential.ts";
import { shortRun } from "./short-run.ts";
import { startUp } from "./start-up.ts";
import { wideRun } from "./wide-run.ts";

export const WORKLOADS: readonly Workload[] = [
  shortRun,
  ...sequential,
  manyRuns,
  growth,
  wideRun,
  recovery,
  asleep,
  httpStarts,
  startUp,
];

export const CHILD_WORKS: { readonly [name: string]: ChildWork } = {
  grow,
  hold,
  recover,
  "recover-floor": recoverFloor,
  sleep,
};
