/** Front matter of SKILL.md. */
import { expect, test } from "vitest";
import { readSkill } from "./skill.ts";

const faults = (text: string) =>
  (readSkill(text, "SKILL.md").diagnostics ?? []).map((each) => `${each.line}:${each.column} ${each.code}`);

test("reads name and description and tolerates other keys", () => {
  const text = "---\nname: code-review\ndescription: >-\n  Reviews\n  code\nallowed-tools: [Read]\n---\n# Text\n---\n";
  expect(readSkill(text, "SKILL.md")).toEqual({ name: "code-review", description: "Reviews code" });
  expect(readSkill("---\r\nname: a\r\ndescription: b\r\n---", "SKILL.md")).toEqual({ name: "a", description: "b" });
});

test.each([
  ["no front matter", "# Text\n", "1:1 front_matter"],
  ["an open one", "---\nname: a\n", "1:1 front_matter"],
  ["a list", "---\n- a\n---\n", "1:1 front_matter"],
  ["a fault in it, at its line of the file", "---\nname: a\ndescription: *b\n---\n", "3:14 yaml_alias"],
  ["a bad name", "---\ndescription: b\nname: A B\n---\n", "3:7 front_matter"],
  ["no description", "---\nname: a\n---\n", "2:1 front_matter"],
])("refuses %s", (_, text, fault) => {
  expect(faults(text)).toEqual([fault]);
});
