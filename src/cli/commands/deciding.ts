/** What `approve` and `deny` share. */
import type { Holdfast, Run } from "../../access/api.ts";
import type { Wait } from "../../domain/run.ts";
import { type Context, withWorkspace } from "../context.ts";
import {
  askDecision,
  chooseWait,
  decide,
  needsDigest,
  openDecisions,
  openInputs,
  readDigest,
  type Word,
} from "../decide.ts";
import { EXIT } from "../output.ts";
import { goOn } from "./moving.ts";

/** Approvals; No may also be said to an input. */
async function decidable(holdfast: Holdfast, run: Run, word: Word): Promise<readonly Wait[]> {
  const approvals = await openDecisions(holdfast, run);
  return word === "approve" ? approvals : [...approvals, ...(await openInputs(holdfast, run))];
}

export async function decideByCommand(context: Context, word: Word): Promise<number> {
  const given = readDigest(context.flags.text("digest"));
  return await withWorkspace(context, {}, async (holdfast, { workspace }) => {
    const runId = await holdfast.runs.find(context.args[0] ?? "");
    const before = await holdfast.runs.inspect(runId);
    const [, wanted] = context.args;
    const open = await decidable(holdfast, before, word);
    // C36: the same decision again has the same answer, though nothing is open for it any more.
    if (
      given !== undefined &&
      wanted !== undefined &&
      /^w-\d+$/.test(wanted) &&
      !open.some(({ wait_id }) => wait_id === wanted)
    ) {
      const again = await decide(holdfast, { run_id: runId, wait_id: wanted }, word, {
        reason: context.flags.text("reason"),
        digest: given,
      });
      return await goOn(context, holdfast, again, before.last_sequence, workspace);
    }
    const wait = chooseWait(open, wanted, runId, word, context);
    let digest = given;
    if (digest === undefined) {
      if (!context.out.terminal.canPrompt) throw needsDigest(context, wait, workspace, word);
      if ((await askDecision(context, wait, workspace, [word])) === undefined) {
        context.out.tell("Nothing was decided.");
        return EXIT.suspended;
      }
      digest = wait.digest;
    }
    const verb = await decide(holdfast, wait, word, { reason: context.flags.text("reason"), digest });
    // The decision may be a child's; what is followed is the run that was named.
    const named = wait.run_id === runId ? verb : { ...verb, run: await holdfast.runs.inspect(runId) };
    return await goOn(context, holdfast, named, before.last_sequence, workspace);
  });
}
