/** How a notice leaves: on the standard input of a command, or as the body of a POST. Each has its time and no more. */
import { spawn } from "node:child_process";
import type { SecretPort } from "../../ports/index.ts";
import type { NotifyOptions } from "./options.ts";

/** All that the command inherits: what else the environment holds may be secret, and is not its business. */
const INHERITED = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "SystemRoot", "SYSTEMROOT", "APPDATA"];

export interface Channel {
  readonly name: "command" | "webhook";
  /** Rejects when it was not taken; `signal` ends it at once. */
  send(body: string, signal: AbortSignal): Promise<void>;
}

export function channelsOf(
  options: NotifyOptions,
  with_: { readonly workspace: string; readonly secrets: SecretPort },
): readonly Channel[] {
  const { command, webhook } = options;
  return [
    ...(command === undefined
      ? []
      : [
          {
            name: "command",
            send: (body, signal) => runCommand(command, with_.workspace, body, signal),
          } satisfies Channel,
        ]),
    ...(webhook === undefined
      ? []
      : [{ name: "webhook", send: (body, signal) => post(webhook, with_.secrets, body, signal) } satisfies Channel]),
  ];
}

function runCommand(command: readonly string[], cwd: string, body: string, signal: AbortSignal): Promise<void> {
  const [program = "", ...args] = command;
  const grouped = process.platform !== "win32";
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(new Error("it was given up before it began"));
    // A group of its own, so that what it started ends with it when its time is over.
    const child = spawn(program, args, {
      cwd,
      env: environment(),
      stdio: ["pipe", "ignore", "ignore"],
      detached: grouped,
    });
    const kill = (): void => {
      try {
        if (grouped && child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
        else child.kill("SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
    };
    signal.addEventListener("abort", kill, { once: true });
    const end = (error?: Error): void => {
      signal.removeEventListener("abort", kill);
      if (error === undefined) resolve();
      else reject(error);
    };
    child.once("error", (error) =>
      end(new Error(`it could not be started: ${(error as NodeJS.ErrnoException).code ?? error.message}`)),
    );
    child.once("exit", (status, by) => {
      if (status === 0) end();
      else
        end(
          new Error(
            signal.aborted
              ? "it did not end in time and was killed"
              : `it ended with ${status === null ? by : `status ${status}`}`,
          ),
        );
    });
    // A command that does not read is no failure; its status says what it made of it.
    child.stdin.on("error", () => undefined);
    child.stdin.end(`${body}\n`);
  });
}

function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    INHERITED.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}

async function post(
  webhook: NonNullable<NotifyOptions["webhook"]>,
  secrets: SecretPort,
  body: string,
  signal: AbortSignal,
): Promise<void> {
  const headers = new Headers({ "Content-Type": "application/json" });
  for (const [name, value] of webhook.headers)
    headers.set(name, typeof value === "string" ? value : await secret(secrets, value.$secret));
  // Another address than the configured one is nobody whom anybody meant to tell.
  const answer = await fetch(webhook.url, { method: "POST", headers, body, signal, redirect: "error" });
  await answer.body?.cancel();
  if (!answer.ok) throw new Error(`it answered ${answer.status}`);
}

async function secret(secrets: SecretPort, name: string): Promise<string> {
  const answer = await secrets.resolve(name);
  if (!answer.ok) throw new Error(`the secret "${name}" cannot be used: ${answer.reason}`);
  return answer.value;
}
