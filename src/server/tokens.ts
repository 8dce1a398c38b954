/**
 * Named tokens: who may ask, as what. One file a token in `<state>/tokens/`, so that adding and revoking are
 * one atomic act each, with or without a running server, and no two commands can lose each other's change:
 *
 *   tokens/NAME.json  {"name", "role", "hash": SHA-256 of the secret in hex, "created_at_ms"}   mode 0600
 *
 * A secret is 32 random bytes, so its plain hash is enough: there is nothing to guess.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import type { Caller } from "../access/api.ts";
import { HoldfastError } from "../domain/errors.ts";

export type Role = Caller["role"];

export interface TokenInfo {
  readonly name: string;
  readonly role: Role;
  readonly created_at_ms: number;
}

interface StoredToken extends TokenInfo {
  readonly hash: string;
}

/** The name of the server's own token in logs. */
export const LOCAL = "local";
const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/i;
const MAX_TOKENS = 1_000;
const MAX_FILE = 4_096;

/** A fresh secret: 256 bits, recognisable by scanners for leaked credentials. */
export function newSecret(): string {
  return `hft_${randomBytes(32).toString("base64url")}`;
}

export class TokenFolder {
  readonly #folder: string;

  /** @param stateDir the workspace's state folder */
  constructor(stateDir: string) {
    this.#folder = join(stateDir, "tokens");
  }

  /** @returns the secret, which is kept nowhere. @throws usage (name, role), conflict (taken) */
  add(name: string, role: Role, nowMs: number): { readonly name: string; readonly role: Role; readonly token: string } {
    if (!NAME.test(name) || name.toLowerCase() === LOCAL)
      throw new HoldfastError(
        "usage",
        `Cannot add the token ${JSON.stringify(name.slice(0, 64))}: a name is 1 to 64 letters, digits, dots, hyphens or underscores, and not "${LOCAL}"`,
      );
    if (this.list().length >= MAX_TOKENS)
      throw new HoldfastError("usage", `Cannot add a token: there are ${MAX_TOKENS} already; revoke some`);
    const token = newSecret();
    const stored: StoredToken = { name, role, hash: hashOf(token).toString("hex"), created_at_ms: nowMs };
    fs.mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const draft = join(this.#folder, `.${randomBytes(8).toString("hex")}.new`);
    fs.writeFileSync(draft, JSON.stringify(stored), { flag: "wx", mode: 0o600 });
    try {
      fs.linkSync(draft, this.#file(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      throw new HoldfastError(
        "conflict",
        `Cannot add the token "${name}": there is one of that name; revoke it first or choose another name`,
      );
    } finally {
      fs.rmSync(draft, { force: true });
    }
    return { name, role, token };
  }

  list(): readonly TokenInfo[] {
    return this.#read().map(({ name, role, created_at_ms }) => ({ name, role, created_at_ms }));
  }

  /** @throws not_found */
  revoke(name: string): void {
    const known = NAME.test(name) && fs.existsSync(this.#file(name));
    if (!known)
      throw new HoldfastError(
        "not_found",
        `Cannot revoke the token ${JSON.stringify(name.slice(0, 64))}: there is none of that name; see: holdfast token list`,
      );
    fs.rmSync(this.#file(name), { force: true });
  }

  /** Read anew for every request that shows a token: a revoked one is refused at once. */
  find(secret: string): Caller | undefined {
    const hash = hashOf(secret);
    let found: Caller | undefined;
    // Every token is compared, so that the time says nothing about which one nearly fitted.
    for (const token of this.#read()) {
      if (timingSafeEqual(hash, Buffer.from(token.hash, "hex"))) found = { name: token.name, role: token.role };
    }
    return found;
  }

  #file(name: string): string {
    return join(this.#folder, `${name.toLowerCase()}.json`);
  }

  #read(): readonly StoredToken[] {
    let names: string[];
    try {
      names = fs.readdirSync(this.#folder);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw error;
    }
    return names
      .filter((name) => name.endsWith(".json"))
      .sort()
      .slice(0, MAX_TOKENS)
      .flatMap((name) => readToken(join(this.#folder, name)) ?? []);
  }
}

/** A file that is damaged or too large gives nobody access. */
function readToken(file: string): StoredToken | undefined {
  try {
    if (fs.statSync(file).size > MAX_FILE) return undefined;
    const value = JSON.parse(fs.readFileSync(file, "utf8")) as Partial<StoredToken> | null;
    if (typeof value?.name !== "string" || !NAME.test(value.name) || !/^[0-9a-f]{64}$/.test(value.hash ?? ""))
      return undefined;
    if (value.role !== "observer" && value.role !== "operator") return undefined;
    return {
      name: value.name,
      role: value.role,
      hash: value.hash as string,
      created_at_ms: Number(value.created_at_ms) || 0,
    };
  } catch {
    return undefined;
  }
}

function hashOf(secret: string): Buffer {
  return createHash("sha256").update(secret, "utf8").digest();
}

const MAX_TOKEN = 512;

/** `Authorization: Bearer TOKEN`, exactly one; anything else is no token. */
export function bearerOf(request: Request): string | undefined {
  const header = request.headers.get("authorization");
  if (header === null || header.length > MAX_TOKEN) return undefined;
  return /^Bearer ([\x21-\x2b\x2d-\x7e]+)$/i.exec(header)?.[1];
}

/** The token in `server.json`, which only the user that serves can read: its word is that user's. */
export interface OwnToken {
  readonly secret: string;
  /** `os:USER`, as on the command line without a server. */
  readonly principal: string;
}

/** Compares with the server's own token and with the named ones. */
export function tokenAuthenticator(
  own: OwnToken | undefined,
  named: TokenFolder | undefined,
): (request: Request) => Caller | undefined {
  const ownHash = own === undefined ? undefined : hashOf(own.secret);
  return (request) => {
    const token = bearerOf(request);
    if (token === undefined) return undefined;
    if (own !== undefined && ownHash !== undefined && timingSafeEqual(ownHash, hashOf(token)))
      return { name: LOCAL, role: "operator", principal: own.principal };
    return named?.find(token);
  };
}
