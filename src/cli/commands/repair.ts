/** `holdfast repair`: what became of a step whose outcome is not known. */
import type { Resolution } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import type { RepairEvidence } from "../../domain/run.ts";
import { type Context, commandLine, decider, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { readJsonFile } from "../reading.ts";
import { elapsed, jsonText, oneLine } from "../text.ts";
import { goOn } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  const [ref = "", step = ""] = context.args;
  const resolution = await readResolution(context);
  const how = resolution === undefined ? { readOnly: true } : {};
  return await withWorkspace(context, how, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(ref);
    if (resolution === undefined) {
      const evidence = await holdfast.waits.evidence(runId, step);
      if (context.out.json) context.out.document(evidence);
      else context.out.print(...evidenceLines(evidence, context, runId, step));
      return EXIT.succeeded;
    }
    const before = await holdfast.runs.inspect(runId);
    const verb = await holdfast.waits.repair(runId, step, { ...resolution, decided_by: decider() });
    return await goOn(context, holdfast, verb, before.last_sequence, workspace);
  });
}

/** @throws HoldfastError `usage` unless exactly one answer, or none, is given */
async function readResolution(context: Context): Promise<Resolution | undefined> {
  const { flags } = context;
  const file = flags.text("outputFile");
  const failed = flags.text("failed");
  const cancelled = flags.text("cancelled");
  const retry = flags.text("retry");
  const given = [flags.on("succeeded"), failed !== undefined, cancelled !== undefined, retry !== undefined].filter(
    Boolean,
  ).length;
  if (given > 1)
    throw new HoldfastError(
      "usage",
      "Cannot repair: several answers are given; give one of --succeeded, --failed, --cancelled, --retry",
    );
  if (flags.on("succeeded") !== (file !== undefined))
    throw new HoldfastError(
      "usage",
      "Cannot repair: --succeeded and --output-file belong together; give both, the output as JSON",
    );
  if (file !== undefined)
    return { resolution: "succeeded", output: await readJsonFile(context, file, "--output-file") };
  if (failed !== undefined) return { resolution: "failed", message: failed };
  if (cancelled !== undefined) return { resolution: "cancelled", message: cancelled };
  return retry === undefined ? undefined : { resolution: "retry", reason: retry };
}

function evidenceLines(evidence: RepairEvidence, context: Context, runId: string, step: string): string[] {
  const { style } = context.out;
  const field = (name: string, value: string) => `  ${style.dim(name.padEnd(12))} ${value}`;
  const age = elapsed(context.process.now() - evidence.started_at_ms);
  const repair = (...answer: string[]) => `  ${commandLine(context, "repair", runId, step, ...answer)}`;
  return [
    `${style.warn(style.waiting)} ${oneLine(evidence.tool)} was sent and its outcome is not known. Find out what happened there.`,
    field("step", oneLine(step)),
    field("attempt", `${evidence.attempt}, sent ${age} ago`),
    field("key", evidence.dispatch_id),
    field("input hash", evidence.input_hash),
    ...(evidence.receipt === undefined ? [] : [field("receipt", jsonText(evidence.receipt))]),
    ...(evidence.lookup === undefined ? [] : [field("looked up", oneLine(evidence.lookup))]),
    ...evidence.late_results.map((late) => field("came late", jsonText(late))),
    "",
    repair("--succeeded", "--output-file", "FILE"),
    repair("--failed", "MESSAGE"),
    repair("--cancelled", "MESSAGE"),
    repair("--retry", "REASON"),
  ];
}
