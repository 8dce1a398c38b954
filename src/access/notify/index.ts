/** Telling people of waits by a command or a webhook. */
export type { Notice } from "./notice.ts";
export { Notifier, type NotifierParts } from "./notifier.ts";
export { type NotifyOptions, PERSON_WAITS, readNotify } from "./options.ts";
