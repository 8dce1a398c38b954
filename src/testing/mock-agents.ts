/** Agents of the simulated world. */
import type { AgentPort } from "../ports/index.ts";

const NEVER: Promise<never> = new Promise(() => undefined);

/** Agents as a process has them: one that is gone asks nothing and hears nothing. */
export function mortalAgents(agents: AgentPort, alive: () => boolean, hold: () => () => void): AgentPort {
  const guard = async <T>(act: () => Promise<T>): Promise<T> => {
    if (!alive()) return NEVER;
    const value = await act().finally(hold());
    return alive() ? value : NEVER;
  };
  return {
    resolve: (name) => guard(() => agents.resolve(name)),
    estimate: (call) => guard(() => agents.estimate(call)),
    call: (call) => guard(() => agents.call(call)),
  };
}
