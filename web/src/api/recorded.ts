// Answers what the page asks from a recording of a run, which stands in the file itself.
import { Problem } from "./problem";

interface Numbered {
  number: number;
}

interface Row {
  step?: string;
  type?: string;
  text?: string;
}

export interface Recording {
  form: number;
  version: string;
  at: string;
  namespace: string;
  run: { id: string; head: number; plan: string };
  graph: unknown;
  timeline: unknown;
  time: unknown;
  usage: unknown;
  family: unknown[];
  loops: Record<string, { strip: unknown; items: Record<string, unknown>[] }>;
  frames: ({ after: number } & Record<string, unknown>)[];
  facts: (Numbered & Row)[];
  steps: Record<string, unknown>;
  values: Record<string, unknown>;
  lines: { number: number; line: unknown }[];
  left_out: string[];
}

type Query = Record<string, unknown>;

const number = (value: unknown, usual: number) => (value === undefined || value === null || value === "" ? usual : Number(value));

function missing(what: string): never {
  throw new Problem({ title: "Not in the file", status: 404, detail: `${what} is not in this file`, code: "not_in_file" });
}

function facts(recording: Recording, query: Query) {
  const text = String(query["q"] ?? "").toLowerCase();
  const after = number(query["after"], 0);
  const limit = number(query["limit"], 100);
  const fitting = recording.facts.filter((each) =>
    each.number > after && (!query["kind"] || each.type === query["kind"]) && (!query["step"] || each.step === query["step"]) &&
    (!text || String(each.text ?? "").toLowerCase().includes(text)));
  const items = fitting.slice(0, limit);
  const more = fitting.length > limit;
  return { items, last: more ? items[items.length - 1]?.number : recording.run.head, more };
}

function lines(recording: Recording, query: Query) {
  const fits = ({ line }: { line: unknown }) => {
    const fields = (typeof line === "object" && line !== null ? line : {}) as Record<string, unknown>;
    const isOf = ["step", "item", "stream"].every((name) => query[name] === undefined || query[name] === null || query[name] === "" || String(fields[name]) === String(query[name]));
    return isOf && (!query["q"] || JSON.stringify(line).toLowerCase().includes(String(query["q"]).toLowerCase()));
  };
  const limit = number(query["limit"], 100);
  const before = query["before"];
  if (before !== undefined && before !== null) {
    const found = recording.lines.filter((each) => each.number < Number(before) && fits(each));
    const items = found.slice(-limit);
    return { items, next: found.length > limit ? items[0]?.number : null, more: found.length > limit };
  }
  const found = recording.lines.filter((each) => each.number > number(query["after"], 0) && fits(each));
  const items = found.slice(0, limit);
  return { items, next: found.length > limit ? items[items.length - 1]?.number : null, more: found.length > limit };
}

function items(recording: Recording, step: string, query: Query) {
  const states = ([] as unknown[]).concat(query["state"] ?? []).map(String);
  const text = String(query["q"] ?? "").toLowerCase();
  const all = recording.loops[step]?.items ?? missing(`the loop ${step}`);
  const fitting = all.filter((each) => (!states.length || states.includes(String(each["status"]))) && (!text || JSON.stringify(each).toLowerCase().includes(text)));
  const skip = number(query["skip"], 0);
  return { items: fitting.slice(skip, skip + number(query["limit"], 50)), next_cursor: null, more: false, count: fitting.length };
}

/** What a server would answer. `path` is that of the API, behind its version. */
export function answerFrom(recording: Recording, method: string, path: string, query: Query): unknown {
  if (method !== "GET") {
    throw new Problem({ title: "A recording", status: 403, detail: "this is a recording of a run: it can only be looked at", code: "read_only" });
  }
  const [first, , ...parts] = path.split("/").map(decodeURIComponent);
  if (first === "me") return { name: "", role: "recording", permissions: ["read", "values"], namespaces: [recording.namespace], workflows: null, expires_at: null };
  const [kind, run, what, name, more] = parts;
  if (kind === "runs" && !run && query["parent"]) return { items: query["parent"] === recording.run.id ? recording.family : [], next_cursor: null, more: false };
  if (kind !== "runs" || run !== recording.run.id) return missing("that");
  switch (what) {
    case undefined: return recording.run;
    case "facts": return name ? (recording.facts[Number(name) - 1] ?? missing(`fact ${name}`)) : facts(recording, query);
    case "frames": return recording.frames.find((each) => each.after === number(query["after"], 0)) ?? missing("that moment");
    case "lines": return lines(recording, query);
    case "graph": return recording.graph;
    case "timeline": return recording.timeline;
    case "time": return recording.time;
    case "usage": return recording.usage;
    case "children": return { items: recording.family, next_cursor: null, more: false };
    case "steps": return recording.steps[name ?? ""] ?? missing(`step ${name}`);
    case "input": case "result": case "context": return recording.values[what] ?? missing(`the ${what}`);
    case "loops":
      if (more === "strip") return recording.loops[name ?? ""]?.strip ?? missing(`the loop ${name}`);
      return more === "items" ? items(recording, name ?? "", query) : missing("that");
    default: return missing("that");
  }
}

function read(): Recording | null {
  const text = document.getElementById("recording")?.textContent;
  return text ? (JSON.parse(text) as Recording) : null;
}

/** The recording of this file; null where a server answers. */
export const recording = read();
