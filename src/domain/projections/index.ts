/** The pure views of a run: what may be done with it, what is shown of it and to whom, and why it stands where it does. */
export { AttemptFold, type FoldedAttempt } from "./attempts.ts";
export {
  type Allowance,
  actions,
  allowedActions,
  decideAnswer,
  decideApprove,
  decideCancel,
  decideDeny,
  decideFork,
  decidePause,
  decideRaiseBudget,
  decideRepair,
  decideRestart,
  decideResume,
  decideRetry,
  isGoing,
  type RunView,
} from "./decisions.ts";
export { operatorEvent, publicEvent } from "./event.ts";
export { type DerivedRows, examineRows, JournalExamination } from "./findings.ts";
export { operatorRun, publicRun, publicStep, runSummary, type SummarySource } from "./run.ts";
export { stepDetail } from "./step.ts";
export {
  ACTION_NAMES,
  type Action,
  type ActionName,
  type AttemptSummary,
  FINDING_CODES,
  type Finding,
  type FindingCode,
  type OperatorEvent,
  type PublicEvent,
  type PublicFailure,
  type PublicPlan,
  type PublicRun,
  type PublicStep,
  type PublicSuspension,
  type PublicWait,
  type Run,
  type RunSummary,
  type StepDetail,
  type Why,
} from "./types.ts";
export { publicFailure, rfc3339 } from "./values.ts";
export { publicSuspension, publicWait } from "./wait.ts";
export { CAUSES, type Cause, type WhyExtra, why } from "./why.ts";
