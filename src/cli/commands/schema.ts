/** `holdfast schema`: JSON Schemas for editors. */
import { HoldfastError } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import { nearest } from "../../domain/nearest.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../output.ts";
import type { CompositionRoot } from "../root.ts";
import { jsonText } from "../text.ts";

const KINDS = new Map<string, (root: CompositionRoot) => JsonObject | Promise<JsonObject>>([
  ["plan", (root) => root.planEditorSchema()],
  ["config", (root) => root.configEditorSchema()],
  ["skill", () => SKILL_SCHEMA],
]);

/** The front matter of a SKILL.md: other keys belong to whoever reads the skill, and are left alone. */
const SKILL_SCHEMA: JsonObject = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "Front matter of a SKILL.md",
  type: "object",
  required: ["name", "description"],
  properties: {
    name: { type: "string", minLength: 1, description: "What the skill is called." },
    description: { type: "string", minLength: 1, description: "What it does and when to use it, for whoever chooses." },
  },
};

export async function run(context: Context): Promise<number> {
  const kind = context.args[0] ?? "";
  const make = KINDS.get(kind);
  if (make === undefined) {
    const names = [...KINDS.keys()];
    const meant = nearest(kind, names);
    throw new HoldfastError(
      "usage",
      `Cannot print a schema: ${JSON.stringify(kind)} is none; ${meant === undefined ? `use ${names.join(", ")}` : `did you mean ${meant}?`}`,
    );
  }
  const schema = await make(await context.process.load());
  if (context.out.json) context.out.document(schema);
  else context.out.print(jsonText(schema, 2));
  return EXIT.succeeded;
}
