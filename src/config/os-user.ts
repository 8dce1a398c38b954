/** The user of the operating system that this process runs as: whose word a decision here is. */
import { userInfo } from "node:os";

/** `os:USER`. */
export function osUser(): string {
  try {
    return `os:${userInfo().username}`;
  } catch {
    // A user id without an entry in the user database, as in some containers.
    return `os:${process.getuid?.() ?? "unknown"}`;
  }
}
