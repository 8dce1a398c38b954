/** `holdfast store`: what the store is, where, and how large. */
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, commandLine, withWorkspace } from "../context.ts";
import { EXIT } from "../output.ts";
import { byteSize, oneLine } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const [action] = context.args;
  if (action !== "info" || context.args.length > 1)
    throw new HoldfastError(
      "usage",
      `Cannot run store${action === undefined ? "" : ` ${JSON.stringify(oneLine(action))}`}: it knows info; run ${commandLine(context, "store", "info")}`,
    );
  return await withWorkspace(context, { readOnly: true, direct: true }, async (holdfast) => {
    const info = await holdfast.storeInfo();
    const { out } = context;
    if (out.json) out.document(info);
    else {
      const field = (name: string, value: string) => `${out.style.dim(name.padEnd(10))} ${value}`;
      out.print(
        field("store", oneLine(info.url)),
        field("engine", `${oneLine(info.engine)} ${oneLine(info.engine_version)}`),
        field("schema", String(info.schema_version)),
        field("durable", `synchronous=${oneLine(info.synchronous)}`),
        field("size", byteSize(info.bytes)),
        field("runs", String(info.runs)),
      );
    }
    return EXIT.succeeded;
  });
}
