/** The one static page: where the API is and how to ask it. No script, no request of its own, no framing. */
import { createHash } from "node:crypto";

const STYLE =
  "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{background:#f4f4f4;padding:1rem;overflow:auto}@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}pre{background:#242424}a{color:#9cf}}";

/** @param base address of this server, which the host check has found to be its own */
export function pageOf(base: string, version: string): { readonly html: string; readonly policy: string } {
  const shown = base.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
  const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Holdfast</title>
<style>${STYLE}</style>
<h1>Holdfast ${version}</h1>
<p>This server runs workflows and keeps their place. The API is at <code>${shown}/api/v1</code>, described in <a href="openapi.json">openapi.json</a>.</p>
<p>Every request needs a token: the server's own is in <code>server.json</code> in the state folder of the workspace; <code>holdfast token add</code> makes others.</p>
<pre>curl -H "Authorization: Bearer $TOKEN" ${shown}/api/v1/sessions/default/workflow-runs</pre>
<p>On this machine the <code>holdfast</code> command finds the server by itself.</p>
</html>
`;
  const hash = createHash("sha256").update(STYLE).digest("base64");
  return {
    html,
    policy: `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  };
}
