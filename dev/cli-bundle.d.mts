/** Types of cli-bundle.mjs, for the build's configuration. */
export declare const ENTRIES: { readonly cli: string; readonly index: string; readonly testing: string };
export declare function cliEntry(): Promise<URL>;
