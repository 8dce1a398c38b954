/** "Did you mean" hints of problems. */
import { nearest } from "../nearest.ts";

/** A hint for a misspelt word, or nothing when no candidate is near. */
export function didYouMean(word: string, candidates: Iterable<string>): { hint?: string } {
  const found = nearest(word, candidates);
  return found === undefined ? {} : { hint: `did you mean "${found}"?` };
}
