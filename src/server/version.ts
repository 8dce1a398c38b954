/** The version of this build, from package.json (inlined by the bundlers, so it works wherever the build lies). */
import packageJson from "../../package.json" with { type: "json" };

export const serverVersion: string = packageJson.version;
