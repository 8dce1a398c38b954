import { describe, expect, test } from "vitest";
import { openSandbox } from "../fixture.ts";
import { MAX_CONTENT_CHARS } from "./limits.ts";
import { characterStart, clip } from "./text.ts";

describe("Read", () => {
  test("answers the whole file, as it is, under both names", async () => {
    await using sandbox = await openSandbox({ "a.txt": "one\r\ntwo\nthree" });
    const whole = {
      path: "a.txt",
      content: "one\r\ntwo\nthree",
      truncated: false,
      first_line: 1,
      lines: 3,
      size_bytes: 14,
    };
    expect(await sandbox.output("Read", { path: "a.txt" })).toEqual(whole);
    expect(await sandbox.output("read_file", { path: "./a.txt" })).toEqual(whole);
  });

  test("answers the lines asked for, and where to go on", async () => {
    await using sandbox = await openSandbox({ "a.txt": "1\n2\n3\n4\n", "empty.txt": "" });
    const read = (offset: number, limit?: number) =>
      sandbox.output("Read", { path: "a.txt", offset, ...(limit === undefined ? {} : { limit }) });
    expect(await read(2, 2)).toMatchObject({
      content: "2\n3\n",
      first_line: 2,
      lines: 2,
      truncated: true,
      next_offset: 4,
    });
    const last = await read(4, 1);
    expect(last).toMatchObject({ content: "4\n", lines: 1, truncated: false });
    expect(last).not.toHaveProperty("next_offset");
    expect(await read(3)).toMatchObject({ content: "3\n4\n", lines: 2, truncated: false });
    expect(await read(9)).toMatchObject({ content: "", lines: 0, truncated: false });
    expect(await sandbox.output("Read", { path: "empty.txt" })).toMatchObject({
      content: "",
      lines: 0,
      truncated: false,
    });
  });

  test("pages through a file larger than one piece without loss or repeat", async () => {
    const text = Array.from({ length: 30_000 }, (_, i) => `line ${i} – 😀`).join("\n");
    await using sandbox = await openSandbox({ "big.txt": text });
    let all = "";
    let offset: unknown = 1;
    while (offset !== undefined) {
      const part = await sandbox.output("Read", { path: "big.txt", offset: offset as number, limit: 7_001 });
      all += part["content"];
      offset = part["next_offset"];
    }
    expect(all).toBe(text);
  });

  test("C23 a text over the limit is cut after a line, or between characters", async () => {
    const lines = "0123456789abcdé\n".repeat(70_000);
    await using sandbox = await openSandbox({ "lines.txt": lines, "line.txt": `x${"😀".repeat(600_000)}` });
    const first = await sandbox.output("Read", { path: "lines.txt" });
    expect(first).toMatchObject({ truncated: true, next_offset: 65_537, lines: 65_536 });
    expect(first["content"]).toBe(lines.slice(0, MAX_CONTENT_CHARS));
    const cut = (await sandbox.output("Read", { path: "line.txt" }))["content"] as string;
    expect(cut.length).toBe(MAX_CONTENT_CHARS - 1);
    expect(cut.isWellFormed()).toBe(true);
  });

  test("bytes that are not UTF-8 become U+FFFD, a byte order mark goes, a later NUL stays, binary is refused", async () => {
    await using sandbox = await openSandbox();
    await sandbox.write("latin.txt", Buffer.from([0x63, 0x61, 0x66, 0xe9]));
    await sandbox.write("surrogate.txt", Buffer.from([0xed, 0xa0, 0x80]));
    await sandbox.write("bom.txt", Buffer.from([0xef, 0xbb, 0xbf, 0x61]));
    await sandbox.write("late.txt", Buffer.concat([Buffer.alloc(9_000, 97), Buffer.from([0, 98])]));
    await sandbox.write("binary", Buffer.from([1, 2, 0, 3]));
    expect(await sandbox.output("Read", { path: "latin.txt" })).toMatchObject({ content: "caf\ufffd" });
    expect(await sandbox.output("Read", { path: "surrogate.txt" })).toMatchObject({ content: "\ufffd\ufffd\ufffd" });
    expect(await sandbox.output("Read", { path: "bom.txt" })).toMatchObject({ content: "a" });
    expect((await sandbox.output("Read", { path: "late.txt" }))["content"]).toBe(`${"a".repeat(9_000)}\0b`);
    expect(await sandbox.call("Read", { path: "binary" })).toMatchObject({
      message: expect.stringContaining("binary"),
    });
  });

  test("says what is wrong with the input or the path", async () => {
    await using sandbox = await openSandbox({ "dir/a.txt": "a" });
    expect(await sandbox.call("Read", { path: "dir" })).toMatchObject({ message: expect.stringContaining("folder") });
    expect(await sandbox.call("Read", { path: "none" })).toMatchObject({ kind: "execution", retryable: true });
    for (const input of [{}, { path: 1 }, { path: "dir/a.txt", offset: 0 }, { path: "dir/a.txt", lines: 1 }])
      expect(await sandbox.call("Read", input)).toMatchObject({ kind: "bad_arguments" });
  });

  test("hears the abort signal", async () => {
    await using sandbox = await openSandbox({ "a.txt": "a" });
    const signal = AbortSignal.abort(new Error("stopped"));
    for (const [tool, input] of [
      ["Read", { path: "a.txt" }],
      ["GetFileInfo", { path: "a.txt" }],
      ["list_directory", { path: "." }],
      ["Glob", { pattern: "*" }],
      ["Grep", { pattern: "a" }],
    ] as const)
      await expect(sandbox.call(tool, input, { signal }), tool).rejects.toThrow("stopped");
  });
});

describe("GetFileInfo and list_directory", () => {
  test("tell what is there", async () => {
    await using sandbox = await openSandbox({ "b.txt": "12345", "a/x": "1", "a.txt": "é" });
    expect(await sandbox.output("GetFileInfo", { path: "b.txt" })).toEqual({
      path: "b.txt",
      type: "file",
      size_bytes: 5,
      modified_at_ms: expect.any(Number),
    });
    expect(await sandbox.output("GetFileInfo", { path: "." })).toMatchObject({
      path: ".",
      type: "directory",
      size_bytes: 0,
    });
    expect(await sandbox.output("list_directory", { path: "." })).toEqual({
      entries: [
        { name: "a.txt", type: "file", size_bytes: 2 },
        { name: "a", type: "directory", size_bytes: 0 },
        { name: "b.txt", type: "file", size_bytes: 5 },
      ],
      truncated: false,
    });
    expect(await sandbox.call("list_directory", { path: "b.txt" })).toMatchObject({ kind: "execution" });
  });

  test("a folder of more than 5,000 entries is cut, in order", async () => {
    await using sandbox = await openSandbox();
    const names = Array.from({ length: 5_003 }, (_, i) => `f${String(i).padStart(5, "0")}`);
    await Promise.all(names.toReversed().map((name) => sandbox.write(`many/${name}`, "")));
    const listing = await sandbox.output("list_directory", { path: "many" });
    expect(listing["truncated"]).toBe(true);
    expect((listing["entries"] as { name: string }[]).map((entry) => entry.name)).toEqual(names.slice(0, 5_000));
  });
});

describe("C23 cutting", () => {
  test("C23 never inside a pair, a flag, an accent or a joined emoji", () => {
    const family = "👨‍👩‍👧‍👦";
    for (const character of ["😀", "🇩🇪", "e\u0301", family, "\r\n"])
      for (let limit = 0; limit <= character.length + 2; limit++)
        expect(clip(`a${character}b`, limit)).toBe(
          limit === 0
            ? ""
            : limit < 1 + character.length
              ? "a"
              : limit === 1 + character.length
                ? `a${character}`
                : `a${character}b`,
        );
  });

  test("C23 one endless character is cut between code points", () => {
    const endless = `x${"😀\u200d".repeat(200)}`;
    for (let limit = 300; limit < 310; limit++) {
      const cut = clip(endless, limit);
      expect(cut.isWellFormed()).toBe(true);
      expect(cut.length).toBeGreaterThan(limit - 70);
    }
    expect(characterStart("abc", 99)).toBe(3);
  });
});
