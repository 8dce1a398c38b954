/** The MCP server: stdio and streamable HTTP over the one door. */
export { createMcpHttpHandler, type HttpOptions, type McpHttpHandler } from "./http.ts";
export { MCP_SESSION, type McpOptions } from "./service.ts";
export { type StdioOptions, serveMcpStdio } from "./stdio.ts";
