/** Types of build-entry.mjs, for tests that are type-checked. */
export declare function buildEntry(file: string): Promise<string>;
