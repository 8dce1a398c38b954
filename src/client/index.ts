/** `holdfast/client`: the operations of `Holdfast` against a server, with its types and errors. */
export type * from "../access/api.ts";
export { type ErrorCode, type ErrorDoc, HoldfastError } from "../domain/errors.ts";
export { connect } from "./client.ts";
export type { ClientOptions } from "./transport.ts";
