/**
 * What every RunStore must do, as one suite that each store runs (DESIGN §14.2) and that others can run on
 * theirs. The port says the rules; a title here names each. Scenario ids are those of the spec files.
 */
import { type TestKit, withSkips } from "./kit.ts";
import { inWorld, type RunStoreSuite, type World } from "./run-store.world.ts";
import { appending, creating } from "./run-store-appends.conformance.ts";
import { leasing, signalling } from "./run-store-claims.conformance.ts";
import { linking } from "./run-store-links.conformance.ts";
import { reading } from "./run-store-reads.conformance.ts";
import { claiming } from "./run-store-resources.conformance.ts";

export type { RunStoreSuite, TestedStore } from "./run-store.world.ts";

/** Registers the suite with the runner's functions. */
export function runStoreConformance(kit: TestKit, suite: RunStoreSuite): void {
  const { test, done } = withSkips(kit, suite.skips ?? []);
  kit.describe(`RunStore: ${suite.name}`, () => {
    const scenario = (name: string, body: (world: World) => Promise<void>): void =>
      test(name, () => inWorld(suite, body));
    appending(kit, scenario);
    creating(kit, scenario);
    leasing(kit, scenario);
    signalling(kit, scenario);
    claiming(kit, scenario);
    linking(kit, scenario);
    reading(kit, scenario);
    done();
  });
}
