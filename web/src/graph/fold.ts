// Folds chains of steps of large graphs into one node, so that a graph of many steps can be read.
export interface GraphStep {
  step: string;
  kind: string;
  queue: string;
  is_loop: boolean;
  child: string | null;
  is_final: boolean;
  join: string | number;
}

export interface GraphArc {
  from: string;
  to: string;
  on: string;
  when: string | null;
  has_condition: boolean;
  is_back: boolean;
}

export interface RunGraph {
  workflow: string;
  entry: string;
  by_events: boolean;
  steps: GraphStep[];
  arcs: GraphArc[];
  marks?: string[];
  plan?: string;
  head?: number;
}

export interface Node {
  id: string;
  steps: string[]; // one, or those of a folded chain
}

export interface Edge {
  from: string;
  to: string;
  arcs: number[]; // their places in the list of arcs
}

export const FOLDS_ABOVE = 300; // steps
const LINK = 20; // steps of a chain that are folded into one node, at most
export const SEARCH_FIRST_ABOVE = 2000; // steps

/** Chains of steps that are each the only way on become one node, unless they are opened. */
export function foldedGraph(graph: RunGraph, folds: boolean, opened: ReadonlySet<string>): { nodes: Node[]; edges: Edge[] } {
  const next = new Map<string, string[]>();
  const before = new Map<string, string[]>();
  for (const arc of graph.arcs) {
    next.set(arc.from, [...(next.get(arc.from) ?? []), arc.to]);
    before.set(arc.to, [...(before.get(arc.to) ?? []), arc.from]);
  }
  const home = new Map<string, string>();
  const nodes: Node[] = [];
  const isLink = (from: string, to: string) => new Set(next.get(from)).size === 1 && new Set(before.get(to)).size === 1 && from !== to;
  for (const { step } of graph.steps) {
    if (home.has(step)) continue;
    const chain = [step];
    if (folds) {
      // go to the beginning of the chain, then to its end
      let first = step;
      const seen = new Set([step]);
      for (let origin = before.get(first)?.[0]; origin && isLink(origin, first) && !seen.has(origin) && !home.has(origin); origin = before.get(first)?.[0]) {
        first = origin;
        seen.add(first);
      }
      chain[0] = first;
      for (let at = next.get(first)?.[0]; at && isLink(chain.at(-1) as string, at) && !chain.includes(at) && !home.has(at); at = next.get(at)?.[0]) chain.push(at);
    }
    for (let begin = 0; begin < chain.length; begin += LINK) {
      const link = chain.slice(begin, begin + LINK);
      const id = link[0] as string;
      const isFolded = link.length >= 3 && !opened.has(id);
      for (const each of link) home.set(each, isFolded ? id : each);
      if (isFolded) nodes.push({ id, steps: link });
      else nodes.push(...link.map((each) => ({ id: each, steps: [each] })));
    }
  }
  const edges = new Map<string, Edge>();
  graph.arcs.forEach((arc, place) => {
    const from = home.get(arc.from);
    const to = home.get(arc.to);
    if (!from || !to || (from === to && arc.from !== arc.to)) return;
    const key = `${from}\n${to}`;
    const known = edges.get(key);
    if (known) known.arcs.push(place);
    else edges.set(key, { from, to, arcs: [place] });
  });
  return { nodes, edges: [...edges.values()] };
}

/** A graph that is too large is shown around one step: what leads there and what follows, up to a number of nodes. */
export function around(graph: RunGraph, step: string, most: number): RunGraph {
  const near = new Map<string, Set<string>>();
  for (const arc of graph.arcs) {
    for (const [a, b] of [[arc.from, arc.to], [arc.to, arc.from]] as const) near.set(a, (near.get(a) ?? new Set()).add(b));
  }
  const found = new Set([step]);
  for (const each of found) {
    for (const other of near.get(each) ?? []) if (found.size < most) found.add(other);
    if (found.size >= most) break;
  }
  const kept = graph.arcs.map((arc, index) => ({ arc, index })).filter(({ arc }) => found.has(arc.from) && found.has(arc.to));
  return { ...graph, steps: graph.steps.filter((each) => found.has(each.step)), arcs: kept.map(({ arc }) => arc), ...(graph.marks ? { marks: kept.map(({ index }) => graph.marks?.[index] ?? "open") } : {}) };
}
