/** RUN references: a full id, a unique suffix of at least 6 characters, `last`, `last:WORKFLOW`. */
import { HoldfastError } from "../domain/errors.ts";
import { type AccessContext, needStore, sessionOf } from "./context.ts";

const MIN_SUFFIX = 6;

export async function findRun(context: AccessContext, ref: string, wantedSession: string | undefined): Promise<string> {
  const session = await sessionOf(context, wantedSession);
  const store = needStore(context);
  const scope = { session_id: session.session_id };
  if (ref === "last" || ref.startsWith("last:")) {
    const workflow = ref === "last" ? undefined : ref.slice("last:".length);
    const [run] = await store.listRuns({
      ...scope,
      limit: 1,
      ...(workflow === undefined ? {} : { workflow_id: workflow }),
    });
    if (run !== undefined) return run.run_id;
    throw new HoldfastError(
      "not_found",
      `Cannot find "${ref}": there is no such run yet; start one with: holdfast run`,
    );
  }
  const exact = await store.getRun(ref);
  if (exact !== undefined && exact.session_id === session.session_id) return ref;
  if (!/^[A-Za-z0-9_-]{1,128}$/.test(ref))
    throw new HoldfastError(
      "usage",
      "Cannot read this run reference: give an id, the last 6 or more characters of one, or `last`",
    );
  if (ref.length < MIN_SUFFIX)
    throw new HoldfastError(
      "usage",
      `Cannot find the run "${ref}": give at least the last ${MIN_SUFFIX} characters of its id`,
    );
  const found = await store.listRuns({ ...scope, id_suffix: ref, children: true, limit: 3 });
  const [run] = found;
  if (run === undefined)
    throw new HoldfastError(
      "not_found",
      `Cannot find the run "${ref}" in the session "${session.name}"; see: holdfast list`,
    );
  if (found.length > 1)
    throw new HoldfastError(
      "usage",
      `Cannot tell which run "${ref}" is: ${found.map((r) => r.run_id).join(", ")} all end so; give more characters`,
    );
  return run.run_id;
}
