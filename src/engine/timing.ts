/** Waiting by the engine's clock. */
import type { Clock } from "../ports/index.ts";

export function sleep(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.at(clock.now() + ms, resolve));
}

/** Waits for `work`, but no longer than `ms`. The timer ends with the work: it must not keep a process alive. */
export async function atMost(clock: Clock, ms: number, work: Promise<unknown>): Promise<void> {
  let timer: { cancel(): void } | undefined;
  const time = new Promise<void>((resolve) => {
    timer = clock.at(clock.now() + ms, resolve);
  });
  await Promise.race([work, time]).finally(() => timer?.cancel());
}
