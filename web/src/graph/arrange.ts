// Lays a graph out with dagre.
import { Graph, layout } from "@dagrejs/dagre";

export interface LayoutRequest {
  id: number;
  nodes: { id: string; width: number; height: number }[];
  edges: { from: string; to: string; label?: string }[];
}

export interface LayoutReply {
  id: number;
  width: number;
  height: number;
  nodes: Record<string, { x: number; y: number }>;
  edges: { x: number; y: number }[][];
}

export function arranged(data: LayoutRequest): LayoutReply {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", ranker: "tight-tree", nodesep: 28, ranksep: 44, edgesep: 14, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const each of data.nodes) graph.setNode(each.id, { width: each.width, height: each.height });
  data.edges.forEach((each, index) => graph.setEdge(each.from, each.to, {}, String(index)));
  layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  const nodes: LayoutReply["nodes"] = {};
  for (const each of data.nodes) {
    const at = graph.node(each.id) as { x: number; y: number };
    nodes[each.id] = { x: at.x, y: at.y };
  }
  const edges = data.edges.map((each, index) => {
    const found = graph.edge(each.from, each.to, String(index)) as { points?: { x: number; y: number }[] } | undefined;
    return found?.points ?? [];
  });
  return { id: data.id, width: size.width ?? 0, height: size.height ?? 0, nodes, edges };
}
