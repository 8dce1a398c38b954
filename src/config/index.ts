/** Workspace, trust and configuration file: what stands before anything is opened (DESIGN §11, §12, R-30, R-35). */

export { importConfig } from "./code.ts";
export type {
  ConfigApprovals,
  ConfigLimits,
  ConfigNotify,
  ConfigPermission,
  ConfigTool,
  HoldfastConfig,
} from "./definition.ts";
export { configEditorSchema, type LoadedConfig, type LoadOptions, loadConfig, type ReadDocument } from "./load.ts";
export { osUser } from "./os-user.ts";
export { INSTANCE_HEADER, isLive, readServerFile, type ServerFile, serverFilePath } from "./server-file.ts";
export { openTrust, type TrustedWorkspace, type TrustList, trustedOnce } from "./trust.ts";
export {
  CONFIG_ENDINGS,
  configFiles,
  type Environment,
  findWorkspace,
  holdfastHome,
  openWorkspaceFolder,
  prepareState,
  type Workspace,
} from "./workspace.ts";
