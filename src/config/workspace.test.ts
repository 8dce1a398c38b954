/** which folder is the workspace, and what its state folder is made like. */
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findWorkspace, holdfastHome, openWorkspaceFolder, prepareState } from "./workspace.ts";

let base: string;
let env: { HOME: string; [name: string]: string };

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "holdfast work ")));
  env = { HOME: join(base, "home") };
  mkdirSync(join(base, "home", "project", "deep", "er"), { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const project = () => join(base, "home", "project");

test("the nearest ancestor with .holdfast/ or a configuration file", () => {
  const deep = join(project(), "deep", "er");
  expect(findWorkspace(deep, env)).toEqual({ root: deep, state_dir: join(deep, ".holdfast/state"), origin: "cwd" });
  mkdirSync(join(project(), ".holdfast"));
  expect(findWorkspace(deep, env)).toMatchObject({ root: project(), origin: "found" });
  writeFileSync(join(project(), "deep", "holdfast.config.mts"), "");
  expect(findWorkspace(deep, env).root).toBe(join(project(), "deep"));
});

test("a file named .holdfast and a folder with the configuration's other endings are no markers", () => {
  writeFileSync(join(project(), ".holdfast"), "");
  writeFileSync(join(project(), "holdfast.config.toml"), "");
  expect(findWorkspace(join(project(), "deep"), env).origin).toBe("cwd");
});

test("never the home folder, also when HOLDFAST_HOME is elsewhere", () => {
  mkdirSync(join(base, "home", ".holdfast"));
  expect(findWorkspace(join(project(), "deep"), env)).toMatchObject({ root: join(project(), "deep"), origin: "cwd" });
  mkdirSync(join(project(), ".holdfast"));
  expect(findWorkspace(join(project(), "deep"), { ...env, HOLDFAST_HOME: join(project(), ".holdfast") }).origin).toBe(
    "cwd",
  );
  expect(holdfastHome(env)).toBe(join(base, "home", ".holdfast"));
});

test("HOLDFAST_WORKSPACE wins, and links are resolved", () => {
  symlinkSync(project(), join(base, "link"));
  expect(findWorkspace(base, { ...env, HOLDFAST_WORKSPACE: "link" })).toMatchObject({
    root: project(),
    origin: "given",
  });
  expect(() => findWorkspace(base, { ...env, HOLDFAST_WORKSPACE: "nothing" })).toThrow(/there is no such folder/);
});

test("state is private, ignored by git, and made once", () => {
  const workspace = openWorkspaceFolder(project());
  expect(prepareState(workspace)).toBe(workspace.state_dir);
  expect(statSync(workspace.state_dir).mode & 0o777).toBe(0o700);
  writeFileSync(join(workspace.state_dir, ".gitignore"), "mine");
  prepareState(workspace);
  expect(readFileSync(join(workspace.state_dir, ".gitignore"), "utf8")).toBe("mine");
});

test.each(["existing", "dangling"])("C39 a workspace cannot lead its state elsewhere by a link (%s)", (kind) => {
  const outside = join(base, "outside");
  if (kind === "existing") mkdirSync(outside);
  symlinkSync(outside, join(project(), ".holdfast"));
  const workspace = openWorkspaceFolder(project());
  expect(() => prepareState(workspace)).toThrow(/a link leads it out of the workspace/);
  expect(() => statSync(join(outside, "state"))).toThrow();
});
