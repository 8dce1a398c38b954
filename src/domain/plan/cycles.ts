/** Plan order plus references must be acyclic (RP-6): finds every reference that closes a cycle. */
import type { Path } from "../schema/index.ts";
import type { Plan, Step } from "./definition.ts";
import { childPaths, nodeId, nodeReferences, type PlacedReference, stepReferences } from "./references.ts";

/** A reference that cannot be satisfied in any order: what it reads waits for its reader. */
export interface CyclicReference extends PlacedReference {
  readonly target: string;
  /** Id of the reader, where it has one. */
  readonly reader: string | undefined;
}

/**
 * @param stepPath where a step is declared, for the places of its references
 */
export function cyclicReferences(
  plan: Plan,
  steps: ReadonlyMap<string, { readonly step: Step; readonly path: Path }>,
  planPath: Path,
): CyclicReference[] {
  const graph = new Graph();
  const exits = new Map<string, number>();
  const reads: { entry: number; reader: string | undefined; placed: PlacedReference }[] = [];

  // Each node has an entry and an exit, so that order costs one edge a neighbour and not one a pair of leaves.
  const visit = (node: Plan, path: Path): { entry: number; exit: number } => {
    const [entry, exit] = [graph.vertex(), graph.vertex()];
    graph.edge(entry, exit);
    const id = nodeId(node);
    if (id !== undefined) exits.set(id, exit);
    const declared = node.type === "step" ? steps.get(node.step) : undefined;
    const placed = declared === undefined ? nodeReferences(node, path) : stepReferences(declared.step, declared.path);
    for (const reference of placed) reads.push({ entry, reader: id, placed: reference });
    let before: number | undefined;
    for (const [child, childPath] of childPaths(node, path)) {
      const part = visit(child, childPath);
      graph.edge(entry, part.entry);
      graph.edge(part.exit, exit);
      if (node.type === "sequence" && before !== undefined) graph.edge(before, part.entry);
      before = part.exit;
    }
    return { entry, exit };
  };
  visit(plan, planPath);

  const edges = reads.flatMap(({ entry, reader, placed }) => {
    const target = placed.reference.from === "step" ? placed.reference.step : undefined;
    const exit = target === undefined ? undefined : exits.get(target);
    if (target === undefined || exit === undefined) return [];
    graph.edge(exit, entry);
    return [{ ...placed, target, reader, exit, entry }];
  });
  const component = graph.components();
  return edges
    .filter(({ exit, entry }) => component[exit] === component[entry])
    .map(({ exit: _exit, entry: _entry, ...found }) => found);
}

class Graph {
  readonly #next: number[][] = [];

  vertex(): number {
    this.#next.push([]);
    return this.#next.length - 1;
  }

  edge(from: number, to: number): void {
    this.#next[from]?.push(to);
  }

  /** Number of the strongly connected component of each vertex (Tarjan, without recursion: sequences may be long). */
  components(): number[] {
    const size = this.#next.length;
    const index = new Array<number>(size).fill(-1);
    const low = new Array<number>(size).fill(0);
    const component = new Array<number>(size).fill(-1);
    const open: number[] = [];
    let clock = 0;
    for (let root = 0; root < size; root++) {
      if (index[root] !== -1) continue;
      const work: { vertex: number; edge: number }[] = [{ vertex: root, edge: 0 }];
      while (work.length > 0) {
        const frame = work[work.length - 1] as { vertex: number; edge: number };
        const { vertex } = frame;
        if (frame.edge === 0 && index[vertex] === -1) {
          index[vertex] = low[vertex] = clock++;
          open.push(vertex);
        }
        const to = this.#next[vertex]?.[frame.edge++];
        if (to !== undefined) {
          if (index[to] === -1) work.push({ vertex: to, edge: 0 });
          else if (component[to] === -1) low[vertex] = Math.min(low[vertex] as number, index[to] as number);
          continue;
        }
        work.pop();
        const parent = work.at(-1)?.vertex;
        if (parent !== undefined) low[parent] = Math.min(low[parent] as number, low[vertex] as number);
        if (low[vertex] !== index[vertex]) continue;
        let member: number | undefined;
        do {
          member = open.pop();
          if (member !== undefined) component[member] = vertex;
        } while (member !== undefined && member !== vertex);
      }
    }
    return component;
  }
}
