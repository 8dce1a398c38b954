/** Types of bundle.mjs, for the build's configuration and for tests. */
export declare const root: string;
export declare const ASSETS: readonly { readonly from: string; readonly to: string; readonly match: RegExp }[];
export declare function bundle(name: string, entries: Readonly<Record<string, string>>): Promise<string>;
