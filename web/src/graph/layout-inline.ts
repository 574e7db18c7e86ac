// Layouts for the page in one file, which can load no worker.
import { arranged, type LayoutReply, type LayoutRequest } from "./arrange";

const kept = new Map<string, Promise<LayoutReply>>();

/** `key` names the graph: the hash of its plan, and what is folded. */
export function layoutOf(key: string, request: Omit<LayoutRequest, "id">): Promise<LayoutReply> {
  const found = kept.get(key) ?? Promise.resolve(arranged({ id: 0, ...request }));
  kept.set(key, found);
  return found;
}
