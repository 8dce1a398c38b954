// Owns the few rules that need types; everything else is biome's.
import tseslint from "typescript-eslint";

export default tseslint.config({
  files: ["src/**/*.ts", "test/**/*.ts", "bench/**/*.ts"],
  languageOptions: { parser: tseslint.parser, parserOptions: { projectService: true } },
  linterOptions: { reportUnusedDisableDirectives: "error" },
  plugins: { "@typescript-eslint": tseslint.plugin },
  rules: {
    "@typescript-eslint/await-thenable": "error",
    "@typescript-eslint/no-floating-promises": "error",
    "@typescript-eslint/no-misused-promises": "error",
    "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
  },
});
