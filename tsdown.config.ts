// Owns the published build: three entries as ES modules with types, and the files that they read at run time.
import { cpSync, existsSync } from "node:fs";
import { defineConfig } from "tsdown";
import { ASSETS } from "./dev/bundle.mjs";
import { ENTRIES } from "./dev/cli-bundle.mjs";

export default defineConfig({
  entry: ENTRIES,
  format: "esm",
  platform: "node",
  target: "node20.19",
  outDir: "dist",
  clean: true,
  // `Symbol.asyncDispose` is in the types: a project without @types/node must still accept them.
  banner: { dts: `/// <reference lib="esnext.disposable" />` },
  dts: { sourcemap: false },
  tsconfig: "tsconfig.build.json",
  sourcemap: false,
  onSuccess() {
    for (const { from, to, match } of ASSETS) {
      if (existsSync(from))
        cpSync(from, `dist/${to}`, { recursive: true, filter: (file) => match.test(file) || file === from });
    }
  },
});
