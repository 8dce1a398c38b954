/** `holdfast repair`: what became of a step whose outcome is not known. */
import type { Resolution } from "../../access/api.ts";
import { HoldfastError } from "../../domain/errors.ts";
import type { RepairEvidence } from "../../domain/run.ts";
import { type Context, commandLine, decider, withWorkspace } from "../context.ts";
import { readDigest } from "../decide.ts";
import { EXIT } from "../output.ts";
import { readJsonFile } from "../reading.ts";
import { shortDigest } from "../render/wait.ts";
import { elapsed, jsonText, oneLine } from "../text.ts";
import { goOn } from "./moving.ts";

export async function run(context: Context): Promise<number> {
  const [ref = "", step = ""] = context.args;
  const resolution = await readResolution(context);
  const digest = readDigest(context.flags.text("digest"));
  const how = resolution === undefined ? { readOnly: true } : {};
  return await withWorkspace(context, how, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(ref);
    const before = await holdfast.runs.inspect(runId);
    const wait = before.waits.find((open) => open.step_id === step && open.evidence !== undefined);
    if (resolution === undefined) {
      const evidence = await holdfast.waits.evidence(runId, step);
      if (context.out.json) context.out.document(evidence);
      else context.out.print(...evidenceLines(evidence, context, { runId, step, digest: wait?.digest }));
      return EXIT.succeeded;
    }
    // GD-74: of the one attempt that is open as this command looks, and of none that comes after it.
    const { dispatch_id } = wait?.evidence ?? {};
    const verb = await holdfast.waits.repair(runId, step, {
      ...resolution,
      decided_by: decider(),
      ...(digest === undefined ? {} : { digest }),
      ...(dispatch_id === undefined ? {} : { dispatch_id }),
    });
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

function evidenceLines(
  evidence: RepairEvidence,
  context: Context,
  { runId, step, digest }: { runId: string; step: string; digest: string | undefined },
): string[] {
  const { style } = context.out;
  const field = (name: string, value: string) => `  ${style.dim(name.padEnd(12))} ${value}`;
  const age = elapsed(context.process.now() - evidence.started_at_ms);
  const proof = digest === undefined ? [] : ["--digest", shortDigest(digest)];
  const repair = (...answer: string[]) => `  ${commandLine(context, "repair", runId, step, ...answer, ...proof)}`;
  return [
    `${style.warn(style.waiting)} ${oneLine(evidence.tool)} was sent and its outcome is not known. Find out what happened there.`,
    field("step", oneLine(step)),
    field("attempt", `${evidence.attempt}, sent ${age} ago`),
    field("key", evidence.dispatch_id),
    field("input hash", evidence.input_hash),
    ...(evidence.receipt === undefined ? [] : [field("receipt", jsonText(evidence.receipt))]),
    ...(evidence.lookup === undefined ? [] : [field("looked up", oneLine(evidence.lookup))]),
    ...(digest === undefined ? [] : [field("digest", digest)]),
    ...evidence.late_results.map((late) => field("came late", jsonText(late))),
    "",
    repair("--succeeded", "--output-file", "FILE"),
    repair("--failed", "MESSAGE"),
    repair("--cancelled", "MESSAGE"),
    repair("--retry", "REASON"),
  ];
}
