/** `holdfast trust`: lets a workspace's configuration and code take effect (DESIGN §11). */
import path from "node:path";
import { HoldfastError } from "../../domain/errors.ts";
import { type Context, commandLine } from "../context.ts";
import { EXIT } from "../output.ts";
import { ask } from "../prompt.ts";
import type { CompositionRoot, TrustList } from "../root.ts";
import { oneLine } from "../text.ts";

export async function run(context: Context): Promise<number> {
  const { flags, args, process, globals, out } = context;
  if (flags.on("revoke") && flags.on("list"))
    throw new HoldfastError("usage", "Cannot revoke and list at once: --revoke and --list are both given; drop one");
  const root = await process.load();
  const trusted = root.openTrust(process.env);
  const problem = trusted.problem();
  if (problem !== undefined) out.tell(`${out.style.warn("warning")}: ${oneLine(problem)}`);
  if (flags.on("list")) return list(context, trusted);
  const named = args[0] ?? globals.workspace;
  const folder =
    named === undefined
      ? root.findWorkspace(process.cwd, process.env).root
      : root.openWorkspaceFolder(path.resolve(process.cwd, named)).root;
  return flags.on("revoke") ? revoke(context, trusted, folder) : await grant(context, root, trusted, folder);
}

function list(context: Context, trusted: TrustList): number {
  const paths = trusted.list().map((each) => each.path);
  if (context.out.json) context.out.document({ paths });
  else if (paths.length === 0) context.out.note("No workspace is trusted.");
  else context.out.print(...paths.map(oneLine));
  return EXIT.succeeded;
}

function revoke(context: Context, trusted: TrustList, folder: string): number {
  const was = trusted.revoke(folder);
  answer(context, folder, false, was ? "is trusted no more" : "was not trusted");
  return EXIT.succeeded;
}

async function grant(context: Context, root: CompositionRoot, trusted: TrustList, folder: string): Promise<number> {
  if (trusted.list().some((each) => each.path === folder)) {
    answer(context, folder, true, "is trusted already");
    return EXIT.succeeded;
  }
  if (!context.flags.on("yes")) {
    const shown = whatItLoads(root, folder);
    if (!context.out.terminal.canPrompt) {
      context.out.tell(...shown);
      throw new HoldfastError(
        "usage",
        `Cannot trust ${folder} without a terminal to ask on; read the above, then run: ${commandLine(context, "trust", folder, "--yes")}`,
      );
    }
    context.out.tell(...shown);
    if (
      (await ask(context, `Type "trust" to trust ${oneLine(folder)}.`, "Enter alone is No")).toLowerCase() !== "trust"
    ) {
      answer(context, folder, false, "is not trusted; nothing was changed");
      return EXIT.refused;
    }
  }
  trusted.trust(folder, context.process.now());
  answer(context, folder, true, "is trusted");
  return EXIT.succeeded;
}

function whatItLoads(root: CompositionRoot, folder: string): string[] {
  const files = root.configFiles(folder).map((file) => oneLine(path.basename(file)));
  const code = files.some((file) => /\.[cm]?[jt]s$/.test(file));
  return [
    `Trusting ${oneLine(folder)} means, for every command from now on:`,
    files.length === 0
      ? "  - it has no configuration file now; one that appears later takes effect without asking again"
      : `  - ${files.join(", ")} takes effect: permissions, limits, tools, secrets it may name`,
    ...(code ? ["  - its code runs in your processes, with your rights"] : []),
    "  - what its configuration does not say: reading and agents are allowed, all else is asked",
  ];
}

function answer(context: Context, folder: string, isTrusted: boolean, sentence: string): void {
  if (context.out.json) context.out.document({ path: folder, trusted: isTrusted });
  else context.out.print(`${oneLine(folder)} ${sentence}.`);
}
