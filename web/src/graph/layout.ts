// Asks the worker for a layout, once for each graph that is shown.
import type { LayoutReply, LayoutRequest } from "./layout.worker";

declare const LAYOUT_WORKER: string; // the name of the file, written by the build

interface Policy {
  createScriptURL: (text: string) => string;
}
interface PolicyMaker {
  createPolicy: (name: string, rules: Policy) => Policy;
}

let worker: Worker | null = null;
let next = 0;
const waiting = new Map<number, (reply: LayoutReply) => void>();
const kept = new Map<string, Promise<LayoutReply>>();

function start(): Worker {
  const address = new URL(`assets/${LAYOUT_WORKER}`, document.baseURI).href;
  const types = (globalThis as { trustedTypes?: PolicyMaker }).trustedTypes;
  const policy = types?.createPolicy("refold", {
    createScriptURL: (text) => {
      if (text !== address) throw new TypeError("only the worker of the page is a script");
      return text;
    },
  });
  const made = new Worker((policy ? policy.createScriptURL(address) : address) as string);
  made.addEventListener("message", ({ data }: MessageEvent<LayoutReply>) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  });
  return made;
}

/** `key` names the graph: the hash of its plan, and what is folded. */
export function layoutOf(key: string, request: Omit<LayoutRequest, "id">): Promise<LayoutReply> {
  let found = kept.get(key);
  if (!found) {
    worker ??= start();
    const id = next++;
    found = new Promise<LayoutReply>((resolve) => waiting.set(id, resolve));
    worker.postMessage({ id, ...request } satisfies LayoutRequest);
    kept.set(key, found);
    if (kept.size > 30) kept.delete(kept.keys().next().value as string);
  }
  return found;
}
