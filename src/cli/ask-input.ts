/**
 * Inputs on a terminal: what is wanted is shown whole, asked value by value, and asked again where it does not fit.
 * Silence answers nothing: Enter where a value is required, Ctrl-C and the end of input leave the wait as it is.
 */
import type { Holdfast, Verb } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";
import { type Json, type JsonObject, pointerTokens, setOwn, toPointer } from "../domain/json.ts";
import type { Wait } from "../domain/run.ts";
import { type Context, decider } from "./context.ts";
import { askLine, showWhole } from "./prompt.ts";
import { membersOf, wanted } from "./render/schema.ts";
import { waitLines } from "./render/wait.ts";
import { clip, oneLine, printable } from "./text.ts";
import { allowedTypes, isObject, propertySchema, readValue, requiredKeys } from "./values.ts";

/** The same value is asked for this often, and an answer sent this often, before it counts as No. */
const MAX_TRIES = 5;
/** An object of more members than this is asked for as one line of JSON. */
const MAX_MEMBERS = 32;
/** Characters of a question about what is wanted; all of it stands above. */
const MAX_WANTED = 200;

/** One value that is asked for: a member of the answer, or all of it. */
interface Question {
  readonly key: string | undefined;
  readonly schema: JsonObject;
  readonly required: boolean;
}

/**
 * Asks for an input and answers it.
 * @returns undefined when nothing was answered: the wait stays as it is
 * @throws HoldfastError `conflict` and others when it was answered meanwhile; a value that does not fit is asked again
 */
export async function answerByAsking(
  context: Context,
  holdfast: Holdfast,
  wait: Wait,
  workspace: string,
  signal?: AbortSignal,
): Promise<Verb | undefined> {
  const lines = waitLines(wait, { workspace, nowMs: context.process.now(), style: context.out.style });
  if (!(await showWhole(context, lines.join("\n"), signal))) return undefined;
  const questions = questionsOf(wait.schema);
  const given = new Map<Question, Json>();
  for (let open = questions, tries = 0; tries < MAX_TRIES; tries++) {
    if (!(await askAll(context, open, given, signal))) return undefined;
    if (given.size === 0) return nothingGiven(context);
    try {
      return await send(holdfast, wait, answerOf(questions, given));
    } catch (error) {
      if (!HoldfastError.is(error) || error.code !== "input") throw error;
      context.out.tell(printable(error.message));
      open = meantBy(error, questions);
    }
  }
  tellGivenUp(context);
  return undefined;
}

function send(holdfast: Holdfast, wait: Wait, value: Json): Promise<Verb> {
  const shown = wait.digest === undefined ? {} : { digest: wait.digest };
  return holdfast.waits.answer(wait.run_id, wait.wait_id, { value, decided_by: decider(), ...shown });
}

function questionsOf(schema: Json | undefined): readonly Question[] {
  const root = isObject(schema) ? schema : {};
  const members = membersOf(root);
  if (members.length === 0 || members.length > MAX_MEMBERS) return [{ key: undefined, schema: root, required: true }];
  const required = new Set(requiredKeys(root));
  return members.map((key) => ({ key, schema: propertySchema(root, key) ?? {}, required: required.has(key) }));
}

function answerOf(questions: readonly Question[], given: ReadonlyMap<Question, Json>): Json {
  const value: Record<string, Json> = {};
  for (const question of questions) {
    const part = given.get(question);
    if (part === undefined) continue;
    if (question.key === undefined) return part;
    setOwn(value, question.key, part);
  }
  return value;
}

/** The question that a refusal is about; all of them where it names none. */
function meantBy(error: HoldfastError, questions: readonly Question[]): readonly Question[] {
  const details = isObject(error.details) ? error.details : {};
  const [key] = typeof details.path === "string" ? (pointerTokens(details.path) ?? []) : [];
  const meant = questions.filter((question) => question.key !== undefined && question.key === key);
  return meant.length > 0 ? meant : questions;
}

/** False as soon as one of them is answered by No. */
async function askAll(
  context: Context,
  questions: readonly Question[],
  given: Map<Question, Json>,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  for (const question of questions) {
    const typed = await askOne(context, question, signal);
    if (typed === undefined) return false;
    if (typed.value === undefined) given.delete(question);
    else given.set(question, typed.value);
  }
  return true;
}

/** @returns undefined for No; without a value: it is left out */
async function askOne(
  context: Context,
  question: Question,
  signal: AbortSignal | undefined,
): Promise<{ readonly value?: Json } | undefined> {
  const enter = question.required ? "Enter alone is No: nothing is answered" : "Enter leaves it out";
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const line = await askLine(context, sentence(question), enter, signal);
    if (line === undefined) return undefined;
    if (line.trim() === "") return question.required ? undefined : {};
    try {
      return { value: await read(question, line) };
    } catch (error) {
      if (!HoldfastError.is(error) || error.code !== "input") throw error;
      context.out.tell(printable(error.message));
    }
  }
  tellGivenUp(context);
  return undefined;
}

function tellGivenUp(context: Context): void {
  context.out.tell(`None of ${MAX_TRIES} answers fits; nothing is answered and nothing is lost.`);
}

/** Where all may be left out, Enter again and again must not become an answer. */
function nothingGiven(context: Context): undefined {
  context.out.tell("Nothing was given, so nothing is answered.");
}

function sentence(question: Question): string {
  const about = clip(wanted(question.schema), MAX_WANTED, "...");
  return `${nameOf(question)}: ${about}${hint(question.schema)}`;
}

function nameOf({ key }: Question): string {
  return key === undefined ? "answer" : oneLine(key);
}

function hint(schema: JsonObject): string {
  const types = allowedTypes(schema);
  if (isYesOrNo(schema)) return "; true or false";
  if (types.length > 1 && types.includes("string")) return "; as JSON or plain text";
  return types.includes("array") || types.includes("object") ? "; as JSON" : "";
}

function isYesOrNo(schema: JsonObject): boolean {
  const types = allowedTypes(schema);
  return types.length === 1 && types[0] === "boolean";
}

const WORDS = new Map([
  ["yes", true],
  ["no", false],
]);

/** @throws HoldfastError `input` for what its schema does not take, with the place */
async function read({ key, schema }: Question, line: string): Promise<Json> {
  const name = key === undefined ? "the answer" : oneLine(key);
  const word = isYesOrNo(schema) ? WORDS.get(line.trim().toLowerCase()) : undefined;
  const value = word ?? readValue(key ?? "", line, schema, name);
  // Loaded late: commands that ask nothing do without it.
  const { compileSchema } = await import("../domain/plan/index.ts");
  const fits = compileSchema(schema).validate(value);
  if (fits.ok) return value;
  const place = `${key === undefined ? "" : toPointer([key])}${fits.path}`;
  throw new HoldfastError(
    "input",
    `Cannot answer: the value does not fit at ${place || "/"}: ${fits.message}; correct it`,
    { details: { path: place } },
  );
}
