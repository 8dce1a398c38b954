/** Tools of the MCP servers that the configuration lists (DESIGN §3, R-41). */
export { type McpServerConfig, type McpToolConfig, readMcpConfig } from "./config.ts";
export { createMcpTools, type McpProbe, type McpTools, withMcpTools } from "./port.ts";
