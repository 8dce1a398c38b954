// Nothing private of a run leaves without the operator role (issue C point 3, RP-74): every private place of real runs
// holds a marker, and every byte that an observer, a stranger or the log gets is searched for it.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defineTool, HoldfastError } from "../../src/index.ts";
import { ROUTES } from "../../src/server/resources/index.ts";
import { RUNS, Served } from "../e2e/server.fixture.ts";

const MARK = "PRIVATE-";
const ANY = { type: "object", additionalProperties: true } as const;
const private_ = (where: string) => `${MARK}${where}`;

/** Tool names, capabilities and item names have a form; the marker is written so that it fits. */
const lower = (where: string) => `private_${where}`;
const FOUND = /private[-_]/i;

const tools = [
  defineTool({
    name: lower("tool"),
    description: private_("description"),
    input: ANY,
    capabilities: ["read"],
    sideEffect: "read_only",
    run: (input) => ({ answer: private_("output"), input: input as never }),
  }),
  defineTool({
    name: lower("failing"),
    description: "x",
    input: ANY,
    capabilities: ["read"],
    sideEffect: "read_only",
    run: () => Promise.reject(new Error(private_("failure"))),
  }),
  defineTool({
    name: lower("asking"),
    description: "x",
    input: ANY,
    capabilities: ["write"],
    sideEffect: "mutating",
    run: () => ({ wrote: private_("late") }),
  }),
  defineTool({
    name: lower("holding"),
    description: "x",
    input: ANY,
    capabilities: ["read"],
    sideEffect: "read_only",
    run: (_, { signal }) =>
      new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(new Error(private_("stopped"))))),
  }),
];

const args = { note: private_("args"), items: [private_("item")] };
const input_schema = {
  type: "object",
  required: ["note", "items"],
  additionalProperties: false,
  properties: { note: { type: "string" }, items: { type: "array", items: { type: "string" } } },
};
const tool = (id: string, name: string, capability = "read") => ({
  id,
  type: "tool",
  tool: name,
  args: { value: { from: "args", pointer: "/note" }, literal: private_("literal") },
  capabilities: [capability],
});
const flow = (id: string, steps: object[], plan: object) => ({
  workflow_schema: 1,
  id,
  revision: 1,
  input_schema,
  budgets: { max_retries: 2 },
  steps,
  plan,
});

const WORKFLOWS = [
  flow(
    "succeeds",
    [
      tool("one", lower("tool")),
      { ...tool("each", lower("tool")), args: { value: { from: "item", name: lower("item") } } },
    ],
    {
      type: "sequence",
      nodes: [
        { type: "step", step: "one" },
        {
          type: "map",
          source: { from: "args", pointer: "/items" },
          item: lower("item"),
          body: { type: "step", step: "each" },
        },
      ],
    },
  ),
  flow("fails", [tool("one", lower("failing"))], {
    type: "retry",
    max_attempts: 2,
    node: { type: "step", step: "one" },
  }),
  flow("asks", [tool("one", lower("asking"), "write")], { type: "step", step: "one" }),
  flow(
    "gates",
    [{ id: "gate", type: "approval", prompt: private_("prompt"), details: { from: "args", pointer: "/note" } }],
    { type: "step", step: "gate" },
  ),
  flow(
    "inputs",
    [
      {
        id: "ask",
        type: "input",
        prompt: private_("question"),
        schema: { type: "string", description: private_("schema") },
      },
    ],
    { type: "step", step: "ask" },
  ),
  flow("holds", [tool("one", lower("holding"))], { type: "step", step: "one" }),
];

let served: Served;
const runs: string[] = [];
let observer: string;

beforeAll(async () => {
  served = new Served({ open: { tools, workflows: WORKFLOWS } });
  const broken = path.join(served.workspace, ".holdfast", "workflows");
  mkdirSync(broken, { recursive: true });
  writeFileSync(
    path.join(broken, "broken.yaml"),
    `workflow_schema: 1\nid: broken\nrevision: 1\n${lower("key")}: ${private_("value")}\n`,
  );
  await served.start();
  observer = served.token("looker", "observer");
  for (const { id } of WORKFLOWS) runs.push(await served.startRun(id, args));
  for (const [i, { id }] of WORKFLOWS.entries())
    if (id !== "holds") await served.holdfast.runs.drive(runs[i] as string);
  await served.post(`${RUNS}/${runs.at(-1)}/cancel`, { reason: private_("reason") });
  await served.fetch("/api/v1/sessions/default", {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ metadata: { note: private_("metadata") } }),
  });
});
afterAll(async () => {
  await served.remove();
});

function leaks(text: string): string[] {
  return [...text.matchAll(/.{0,40}private[-_].{0,40}/gi)].map(([found]) => found);
}

async function everything(answer: Response): Promise<string> {
  const head = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  return `${answer.status}\n${head}\n${await answer.text()}`;
}

/** Addresses of a route for every run, step and wait there is. */
function addresses(route: (typeof ROUTES)[number]): string[] {
  const base = route.path
    .replace("{session_id}", "default")
    .replace("{workflow_id}", "succeeds")
    .replace("{sha256}", "0".repeat(64))
    .replace("{dispatch_id}", "0".repeat(64))
    .replace("{instance}", "one")
    .replace("{wait_id}", "w-4");
  return base.includes("{run_id}") ? runs.map((run_id) => base.replace("{run_id}", run_id)) : [base];
}

describe("the runs hold markers", () => {
  test("in what the operator reads, so that the search below can find them", async () => {
    const texts = await Promise.all(
      runs.map(
        async (run_id) =>
          (await served.fetch(`${RUNS}/${run_id}/inspect`)).text() +
          (await (await served.fetch(`${RUNS}/${run_id}/journal`)).text()),
      ),
    );
    const all = texts.join("");
    for (const where of ["args", "item", "output", "failure", "literal", "prompt", "question", "schema", "reason"])
      expect([where, all.includes(private_(where))]).toEqual([where, true]);
    expect(all).toContain(lower("tool"));
  });
});

describe("without the operator role", () => {
  test("no address answers with a marker, whatever its method and status", async () => {
    const found: string[] = [];
    for (const route of ROUTES) {
      for (const address of addresses(route)) {
        for (const token of [observer, null]) {
          if (route.path.endsWith("/events") && !route.path.includes("{run_id}")) continue;
          const body =
            route.method === "get"
              ? {}
              : {
                  body: JSON.stringify({ reason: private_("asked") }),
                  headers: { "Content-Type": "application/json" },
                };
          const text = await everything(
            await served.fetch(address, { method: route.method.toUpperCase(), token, ...body }),
          );
          // A public entry shows the schema that its callers must fit (interfaces §3); nothing else of it is private.
          for (const leak of leaks(text)) found.push(`${route.method} ${address}: ${leak}`);
        }
      }
    }
    expect(found).toEqual([]);
  }, 30_000);

  test("no event stream does", async () => {
    const found: string[] = [];
    for (const run_id of runs) {
      const answer = await served.fetch(`${RUNS}/${run_id}/events`, {
        token: observer,
        headers: { Accept: "text/event-stream" },
        signal: AbortSignal.timeout(400),
      });
      let text = "";
      try {
        for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>)
          text += new TextDecoder().decode(chunk);
      } catch {
        // Open runs stream on; what came is what counts.
      }
      expect(text).toContain("event: run_queued");
      found.push(...leaks(text));
    }
    expect(found).toEqual([]);
  });

  test("no error does: not of requests, not of a broken store", async () => {
    const texts: string[] = [];
    const bodies = [
      { workflow_id: "succeeds", revision: 1, args: { note: private_("wrong"), items: 1 } },
      { workflow_id: "broken", revision: 1 },
      { workflow_id: "succeeds", revision: 9 },
    ];
    for (const body of bodies) texts.push(await everything(await served.post(RUNS, body, {}, observer)));
    const real = served.holdfast.runs.get;
    const faults = [
      new Error(private_("bug")),
      new HoldfastError("storage", "BACKEND-words", { details: { path: private_("path") } }),
      new HoldfastError("not_possible", private_("state")),
    ];
    for (const fault of faults) {
      Object.assign(served.holdfast.runs, { get: () => Promise.reject(fault) });
      texts.push(await everything(await served.fetch(`${RUNS}/${runs[0]}`, { token: observer })));
    }
    Object.assign(served.holdfast.runs, { get: real });
    expect(texts.flatMap(leaks)).toEqual([]);
    const codes = texts.slice(-faults.length).map((text) => /"code":"(\w+)"/.exec(text)?.[1]);
    expect(codes).toEqual(["internal", "storage", "not_possible"]);
    // RP-83: what the store said goes to the server's log and nowhere else.
    expect(texts.at(-2)).toContain("workflow storage unavailable");
    expect(texts.at(-2)).not.toContain("BACKEND");
    expect(served.logged.join("")).toContain("BACKEND-words");
  });

  test("the log does not, even for the operator's requests", async () => {
    await served.post(RUNS, { workflow_id: "succeeds", revision: 1, args: { note: private_("logged"), items: 1 } });
    await served.fetch(`/api/v1/sessions/${private_("session")}/workflow-runs`);
    await served.fetch(`${RUNS}/${private_("run").replace("-", "%20")}`);
    expect(served.logged.length).toBeGreaterThan(20);
    expect(served.logged.flatMap(leaks)).toEqual([]);
    expect(FOUND.test(private_("x"))).toBe(true);
  });

  test("figures do not", async () => {
    expect(leaks(await (await served.fetch("/metrics", { token: observer })).text())).toEqual([]);
  });
});
