// Owns loading the checkout's command: apart from bin/holdfast, so that an old Node never parses it.
const { enableCompileCache } = require("node:module");

// Node 22 and newer keep compiled code between starts.
enableCompileCache?.();

import("./cli-bundle.mjs").then(({ cliEntry }) => cliEntry()).then((entry) => import(entry.href), refuse);

function refuse(error) {
  if (error.name === "BundleError") {
    console.error(error.message);
    process.exit(error.status);
  }
  // esbuild's errors carry file, line and the sentence; anything else is a bug of this script.
  const problems = error.errors ?? [];
  for (const { location, text } of problems.slice(0, 10)) {
    console.error(location ? `${location.file}:${location.line}:${location.column + 1}: ${text}` : text);
  }
  console.error(
    `Cannot build the command from src: ${problems.length === 0 ? error.stack : "correct the lines above"}.`,
  );
  process.exit(70);
}
