/** The plan program: step, sequence, parallel, choice, map, retry (RP-29 … RP-40). */
export { planProgram } from "./interpreter.ts";
