/** What a refused body or query is told: which field, and what may stand there. */
import { z } from "@hono/zod-openapi";
import { describe, expect, test } from "vitest";
import { HoldfastError } from "../domain/errors.ts";
import { readBody, readQuery } from "./reading.ts";
import { answerRequest, decisionRequest, repairRequest, waitTypeList } from "./schemas.ts";

const BOUNDS = { body_bytes: 1_000, body_ms: 1_000 };

async function bodySays(schema: z.ZodType, body: unknown): Promise<string> {
  const request = new Request("http://localhost/", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const refused: unknown = await readBody(request, schema, BOUNDS, false).catch((error: unknown) => error);
  return HoldfastError.is(refused) ? refused.message : "accepted";
}

function querySays(query: string): string {
  try {
    readQuery(z.object({ type: waitTypeList }), new URLSearchParams(query));
    return "accepted";
  } catch (error) {
    return HoldfastError.is(error) ? error.message : "a bug";
  }
}

const digest = "0".repeat(64);

describe("a body that does not fit", () => {
  test.each<readonly [string, z.ZodType, unknown, string]>([
    [
      "a repair of nothing",
      repairRequest,
      {},
      "`resolution` must be succeeded, failed, cancelled or retry; correct it",
    ],
    [
      "a repair by another word",
      repairRequest,
      { resolution: "done" },
      "must be succeeded, failed, cancelled or retry",
    ],
    [
      "a repair without its output",
      repairRequest,
      { resolution: "succeeded", digest },
      "`output` is missing; give any JSON value",
    ],
    [
      "a repair with another's field",
      repairRequest,
      { resolution: "retry", message: "m", digest },
      "`reason` is missing",
    ],
    ["an answer of nothing", answerRequest, {}, "`value` is missing; give any JSON value"],
    ["a decision without a digest", decisionRequest, {}, "`digest` is missing"],
  ])("%s", async (_, schema, body, said) => {
    expect(await bodySays(schema, body)).toContain(said);
  });

  test("null, false and an empty list are values", async () => {
    for (const value of [null, false, [], 0, ""]) expect(await bodySays(answerRequest, { value })).toBe("accepted");
  });
});

test("a query of an unknown type names those that there are", () => {
  for (const query of ["type=zzz", "type=input&type=zzz"])
    expect(querySays(query)).toMatch(
      /^Cannot read the query: `type` must be recovery, .*, paused or child; correct it$/,
    );
  for (const query of ["", "type=input", "type=input&type=approval"]) expect(querySays(query)).toBe("accepted");
});
