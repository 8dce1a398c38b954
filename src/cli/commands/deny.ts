/** `holdfast deny`. */
import type { Context } from "../context.ts";
import { decideByCommand } from "./deciding.ts";

export function run(context: Context): Promise<number> {
  return decideByCommand(context, "deny");
}
