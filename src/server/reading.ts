/** Requests from bytes to values: bounded before they are parsed, parsed once, unknown fields refused (DESIGN §11). */
import type { z } from "@hono/zod-openapi";
import { readJson } from "../catalog/index.ts";
import { nearest } from "../domain/nearest.ts";
import { refusal } from "./problem.ts";

const KEY = /^[\x21-\x7e]{1,200}$/;

/** @throws HoldfastError `usage` */
export function readKey(request: Request): string | undefined {
  const key = request.headers.get("idempotency-key");
  if (key === null) return undefined;
  if (!KEY.test(key))
    throw refusal("usage", "Cannot use this Idempotency-Key: it must be 1 to 200 visible ASCII characters");
  return key;
}

/** Parameters of the path. What does not fit its pattern names nothing: not found, like everything else that is not there. */
export function readParams<T>(schema: z.ZodType<T>, given: { readonly [name: string]: string }): T {
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const name = String(parsed.error.issues[0]?.path[0] ?? "id");
  throw refusal("not_found", `Cannot find this: ${name} in the address has a form that no ${name} has; check the id`);
}

/** @throws HoldfastError `usage`: unknown, repeated or wrong */
export function readQuery<T>(schema: z.ZodObject, given: URLSearchParams): T {
  const values = new Map<string, string[]>();
  for (const [name, value] of given) values.set(name, [...(values.get(name) ?? []), value]);
  const known = Object.keys(schema.shape);
  const plain: Record<string, string | string[]> = {};
  for (const [name, all] of values) {
    if (!known.includes(name)) throw unknownField("query", name, known);
    plain[name] = all.length === 1 ? (all[0] as string) : all;
  }
  return parse<T>(schema as z.ZodType<T>, plain, "query");
}

/** The body as a value of the schema. @throws HoldfastError `unsupported_media_type`, `too_large`, `usage` */
export async function readBody<T>(
  request: Request,
  schema: z.ZodType<T>,
  bounds: { readonly body_bytes: number; readonly body_ms: number },
  optional: boolean,
): Promise<{ readonly value: T; readonly text: string }> {
  const type = request.headers.get("content-type");
  const empty = request.body === null || request.headers.get("content-length") === "0";
  if (type === null && empty && optional) return { value: parse(schema, {}, "body"), text: "" };
  checkMediaType(request);
  const bytes = await readBytes(request, bounds);
  if (bytes.length === 0 && optional) return { value: parse(schema, {}, "body"), text: "" };
  const text = decode(bytes);
  const read = readJson(text, "body");
  if (read.diagnostics !== undefined) {
    const [first] = read.diagnostics;
    throw refusal(
      "usage",
      `Cannot read the body: it is not JSON at line ${first?.line ?? 1}, column ${first?.column ?? 1}: ${first?.message ?? "it is empty"}; correct it`,
    );
  }
  refusePrototypes(read.value);
  return { value: parse(schema, read.value, "body"), text };
}

/** C37: a page can send other types without asking the browser first. @throws HoldfastError `unsupported_media_type` */
export function checkMediaType(request: Request): void {
  if (
    /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-?8"?\s*)?$/i.test(request.headers.get("content-type") ?? "") &&
    !request.headers.has("content-encoding")
  )
    return;
  throw refusal(
    "unsupported_media_type",
    "Cannot read the body: only application/json in UTF-8, not encoded, is accepted; say so in Content-Type",
  );
}

/** At most `body_bytes`, within `body_ms`. @throws HoldfastError `too_large`, `usage` */
export async function readBytes(
  request: Request,
  bounds: { readonly body_bytes: number; readonly body_ms: number },
): Promise<Uint8Array> {
  const tooLarge = () =>
    refusal("too_large", `Cannot read the body: it is larger than ${bounds.body_bytes} bytes; send less`);
  if (Number(request.headers.get("content-length") ?? 0) > bounds.body_bytes) throw tooLarge();
  if (request.body === null) return new Uint8Array();
  const reader = request.body.getReader();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          refusal("usage", `Cannot read the body: it did not arrive within ${bounds.body_ms} ms; send it at once`),
        ),
      bounds.body_ms,
    );
  });
  late.catch(() => undefined);
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), late]);
      if (done) return Buffer.concat(chunks);
      length += value.length;
      if (length > bounds.body_bytes) throw tooLarge();
      chunks.push(value);
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refusal("usage", "Cannot read the body: it is not UTF-8; send it as UTF-8");
  }
}

/** `__proto__` is a key like any other in arguments, and none in our own objects. */
function refusePrototypes(value: unknown): void {
  const own = (object: unknown): boolean =>
    typeof object === "object" && object !== null && Object.hasOwn(object, "__proto__");
  if (
    !own(value) &&
    !own((value as { budget?: unknown } | null)?.budget) &&
    !own((value as { metadata?: unknown } | null)?.metadata)
  )
    return;
  throw refusal("usage", "Cannot read the body: unknown field `__proto__`; leave it out");
}

function parse<T>(schema: z.ZodType<T>, value: unknown, where: "body" | "query"): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw explain(parsed.error.issues, schema, where);
}

function explain(issues: readonly z.core.$ZodIssue[], schema: z.ZodType, where: string): Error {
  const [issue] = issues;
  const path = (issue?.path ?? []).map(String);
  if (issue?.code === "unrecognized_keys") {
    const known = path.length === 0 && "shape" in schema ? Object.keys(schema.shape as object) : [];
    return unknownField(where, [...path, issue.keys[0] ?? ""].join("."), known);
  }
  if (issue?.code === "invalid_union") {
    const choice = choiceOf(issue);
    if (choice !== undefined) return explain([choice], schema, where);
    const branches = issue.errors.filter((branch) => branch.length > 0);
    const [best] = [...branches].sort((a, b) => rank(a) - rank(b));
    if (best !== undefined)
      return explain(
        best.map((each) => ({ ...each, path: [...issue.path, ...each.path] })),
        schema,
        where,
      );
  }
  // In a query what is given twice is one name still.
  const field = (where === "query" ? path.slice(0, 1) : path).join(".");
  const said = `Cannot read the ${where}: ${field === "" ? `the ${where}` : `\`${field}\``} ${words(issue)}`;
  return refusal("usage", said.includes("; ") ? said : `${said}; correct it`, { field });
}

/** Where every branch wants another word in the same place: all those words. */
function choiceOf(union: z.core.$ZodIssueInvalidUnion): z.core.$ZodIssueInvalidValue | undefined {
  const wanted = union.errors.map((branch) => branch.find((issue) => issue.code === "invalid_value"));
  const [first] = wanted;
  if (first === undefined) return undefined;
  const values: z.core.$ZodIssueInvalidValue["values"] = [];
  for (const issue of wanted) {
    if (issue?.path.join(".") !== first.path.join(".")) return undefined;
    values.push(...issue.values);
  }
  return { ...first, path: [...union.path, ...first.path], values };
}

/** The branch that was meant: the one whose discriminating word fitted. */
function rank(issues: readonly z.core.$ZodIssue[]): number {
  return issues.some((issue) => issue.code === "invalid_value") ? 1_000 : issues.length;
}

function words(issue: z.core.$ZodIssue | undefined): string {
  if (issue?.code === "invalid_value") return `must be ${orList(issue.values.map(String))}`;
  if (issue?.code === "invalid_type")
    return issue.input === undefined ? `is missing or not ${issue.expected}` : `must be ${issue.expected}`;
  if (issue?.code === "invalid_format") return "has a form that is not allowed";
  return issue === undefined ? "is wrong" : issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
}

/** `a, b or c`. */
function orList(words: readonly string[]): string {
  const last = words.at(-1) ?? "";
  return words.length < 2 ? last : `${words.slice(0, -1).join(", ")} or ${last}`;
}

function unknownField(where: string, name: string, known: readonly string[]): Error {
  const shown = JSON.stringify(name.slice(0, 100));
  const meant = nearest(name, known);
  const hint =
    meant === undefined
      ? known.length === 0
        ? "leave it out"
        : `known: ${known.join(", ")}`
      : `did you mean "${meant}"?`;
  return refusal("usage", `Cannot read the ${where}: unknown field ${shown}; ${hint}`, { field: name.slice(0, 100) });
}
