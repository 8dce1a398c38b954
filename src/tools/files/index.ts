/** The built-in file tools (DESIGN §12): read only, inside the workspace, each with one documented answer. */
import type { ToolGroup } from "../registry.ts";
import { fileInfoTool } from "./file-info.ts";
import { globTool } from "./glob.ts";
import { grepTool } from "./grep.ts";
import { listDirectoryTool } from "./list-directory.ts";
import { readTool } from "./read.ts";

let group: ToolGroup | undefined;

/** The group of the six names that RP-19 lets an untrusted workspace use; made once. */
export function fileTools(): ToolGroup {
  group ??= {
    source: "builtin",
    origin: "the built-in file tools",
    tools: [readTool("Read"), readTool("read_file"), fileInfoTool(), globTool(), listDirectoryTool(), grepTool()],
  };
  return group;
}
