// One stream for all tabs of a browser. The tab that has the lock reads it and hands every event to the others.
//
// A browser opens six connections to a host: with a stream for each tab the seventh would hang without an error. Where
// there are no locks (plain http beyond this machine), only a tab that is seen reads.
import { effect, signal } from "@preact/signals";
import { place } from "../app/router";
import { connection, inNamespace, lastAnswer, link } from "./client";

export interface StreamEvent {
  topic: string; // the one that the event belongs to; "" for events of the stream itself
  name: string;
  data: unknown;
}

type Listener = (event: StreamEvent) => void;
type Message =
  | { kind: "event"; ns: string; event: StreamEvent }
  | { kind: "wants"; tab: string; ns: string; topics: string[] }
  | { kind: "who" } // the new leader asks what the tabs want
  | { kind: "gone"; tab: string }
  | { kind: "seen" } // a tab is seen now, and would read the stream
  | { kind: "live"; is: boolean };

const MOST_TOPICS = 64;
const HIDDEN_FOR = 60_000; // milliseconds after which a browser whose tabs are all hidden lets the stream go
const SETTLE = 40; // milliseconds in which several changes of topics become one stream
const tab = Math.random().toString(36).slice(2);
const channel = new BroadcastChannel(`refold ${location.host}${location.pathname}`);
const listeners = new Map<string, Set<Listener>>();
const others = new Map<string, { ns: string; topics: string[]; at: number }>();

export const version = signal(""); // of the server, as it said it first
export const isNewer = signal(false); // the server has been replaced since
let isLeader = false;
let abort: AbortController | null = null;
let reading = "";
let timer = 0;
let release: (() => void) | null = null;

/** Listen to a topic. Returns what ends it. */
export function subscribe(topic: string, listener: Listener): () => void {
  const known = listeners.get(topic) ?? new Set();
  known.add(listener);
  listeners.set(topic, known);
  wantsChanged();
  return () => {
    known.delete(listener);
    if (!known.size) listeners.delete(topic);
    wantsChanged();
  };
}

function wantsChanged(): void {
  clearTimeout(timer);
  timer = setTimeout(() => {
    channel.postMessage({ kind: "wants", tab, ns: place.value.ns, topics: [...listeners.keys()] } satisfies Message);
    if (isLeader) read();
  }, SETTLE) as unknown as number;
}

function give(ns: string, event: StreamEvent): void {
  if (event.name === "hello") {
    const said = (event.data as { version?: string }).version ?? "";
    if (version.value && said && version.value !== said) isNewer.value = true;
    else if (said) version.value = said;
  }
  if (ns !== place.value.ns && event.topic) return;
  const chosen = event.topic ? [listeners.get(event.topic)] : [...listeners.values()];
  for (const group of chosen) if (group) for (const each of [...group]) each(event);
}

channel.addEventListener("message", ({ data }: MessageEvent<Message>) => {
  if (data.kind === "event") {
    lastAnswer.value = Date.now();
    give(data.ns, data.event);
  } else if (data.kind === "live") {
    if (!isLeader && connection.value !== "signed-out") connection.value = data.is ? "live" : "gone";
  } else if (data.kind === "who") {
    wantsChanged();
  } else if (data.kind === "wants") {
    const before = JSON.stringify(others.get(data.tab)?.topics);
    others.set(data.tab, { ns: data.ns, topics: data.topics, at: Date.now() });
    if (isLeader) {
      channel.postMessage({ kind: "live", is: connection.value === "live" } satisfies Message);
      // A tab that has just come gets what is there now, which only a new stream says.
      if (before !== JSON.stringify(data.topics)) read(before === undefined);
    }
  } else if (data.kind === "seen") {
    if (isLeader && document.hidden) release?.();
  } else if (data.kind === "gone") {
    others.delete(data.tab);
    if (isLeader) read();
  }
});
addEventListener("pagehide", () => channel.postMessage({ kind: "gone", tab } satisfies Message));

function wanted(): string[] {
  const found = new Set(listeners.keys());
  for (const each of others.values()) if (each.ns === place.value.ns) for (const topic of each.topics) found.add(topic);
  return [...found].sort().slice(0, MOST_TOPICS);
}

function read(anew = false): void {
  const topics = wanted().join(",");
  const key = `${place.value.ns}|${topics}`;
  if (key === reading && abort && !anew) return;
  abort?.abort();
  abort = null;
  reading = key;
  if (topics) void follow(key, topics, (abort = new AbortController()));
}

function live(is: boolean): void {
  if (connection.value === "signed-out") return;
  connection.value = is ? "live" : "gone";
  channel.postMessage({ kind: "live", is } satisfies Message);
}

async function follow(key: string, topics: string, mine: AbortController): Promise<void> {
  const ns = place.value.ns;
  let wait = 500;
  while (!mine.signal.aborted && reading === key) {
    try {
      const answer = await fetch(link(inNamespace("stream"), { topics }), { headers: { "x-refold": "1" }, signal: mine.signal });
      if (answer.status === 401) {
        connection.value = "signed-out";
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(String(answer.status));
      live(true);
      wait = 500;
      for await (const event of eventsOf(answer.body)) {
        lastAnswer.value = Date.now();
        if (event.name === "revoked") connection.value = "signed-out";
        give(ns, event);
        channel.postMessage({ kind: "event", ns, event } satisfies Message);
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    if (mine.signal.aborted) return;
    live(false);
    await new Promise((resume) => setTimeout(resume, wait));
    wait = Math.min(wait * 2, 5000);
  }
}

/** Read the events of a stream as they come. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    kept += value;
    let end: number;
    while ((end = kept.indexOf("\n\n")) >= 0) {
      const block = kept.slice(0, end);
      kept = kept.slice(end + 2);
      let name = "";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (name) yield eventOf(name, data ? JSON.parse(data) : null);
    }
  }
}

/** The server says the topic of an event in its data. */
function eventOf(name: string, data: unknown): StreamEvent {
  const topic = typeof data === "object" && data !== null && "topic" in data ? String((data as { topic: unknown }).topic) : "";
  return { topic, name, data };
}

function lead(): void {
  isLeader = true;
  channel.postMessage({ kind: "who" } satisfies Message);
  read(true);
}

function stopLeading(): void {
  isLeader = false;
  abort?.abort();
  abort = null;
  reading = "";
}

function queueForLock(): void {
  if (!navigator.locks) {
    const turn = () => (document.hidden ? stopLeading() : isLeader || lead());
    document.addEventListener("visibilitychange", turn);
    turn();
    return;
  }
  const name = `refold stream ${location.host}${location.pathname}`;
  let waiting: AbortController | null = null; // this tab is in the queue
  const queue = () => {
    if (waiting || release) return;
    const mine = (waiting = new AbortController());
    const lease = navigator.locks.request(name, { signal: mine.signal }, async () => {
      waiting = null;
      const over = new Promise<void>((resolve) => (release = resolve));
      lead();
      await over;
      release = null;
      stopLeading();
    });
    lease.catch(() => undefined).then(() => {
      if (waiting === mine) waiting = null;
      if (!document.hidden) queue();
    });
  };
  // Only tabs that are seen queue. A hidden leader hands over to one of them, or lets the stream go after a while.
  const seenOrHidden = async () => {
    clearTimeout(hiddenTimer);
    if (!document.hidden) {
      queue();
      channel.postMessage({ kind: "seen" } satisfies Message);
    } else if (!release) {
      waiting?.abort();
    } else {
      hiddenTimer = setTimeout(() => release?.(), HIDDEN_FOR) as unknown as number;
      const { pending } = await navigator.locks.query();
      if (document.hidden && pending?.some((each) => each.name === name)) release?.();
    }
  };
  document.addEventListener("visibilitychange", () => void seenOrHidden());
  void seenOrHidden();
}
let hiddenTimer = 0;

export function startStream(): void {
  queueForLock();
  let ns = place.value.ns;
  effect(() => {
    if (place.value.ns !== ns) {
      ns = place.value.ns;
      wantsChanged();
    }
  });
}
