// Asks the server. Every answer is parsed twice over: as data, and, where values matter, as the text that was sent.
import { signal } from "@preact/signals";
import { place } from "../app/router";
import { Problem, type ProblemDocument } from "./problem";
import { answerFrom, recording } from "./recorded";
import type { Me } from "./types";

export { Problem, type ProblemDocument } from "./problem";

/** The server did not answer. */
export class NoAnswer extends Error {}

const ROOT = new URL("api/v1/", document.baseURI).href;

export type Connection = "connecting" | "live" | "quiet" | "gone" | "signed-out";
export const connection = signal<Connection>("connecting");
export const lastAnswer = signal(0);
export const me = signal<Me | null>(null);

type Parameters = Record<string, string | number | boolean | readonly string[] | null | undefined>;

function address(path: string, query: Parameters): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    if (Array.isArray(value)) for (const each of value) pairs.append(name, String(each));
    else pairs.append(name, String(value));
  }
  const text = pairs.toString();
  return ROOT + path + (text ? `?${text}` : "");
}

/** The path of something in the namespace of this page. */
export function inNamespace(...parts: (string | number)[]): string {
  return ["ns", place.value.ns, ...parts].map((each) => encodeURIComponent(each).replaceAll("%3A", ":")).join("/");
}

export function runPath(run: string, ...parts: (string | number)[]): string {
  return inNamespace("runs", run, ...parts);
}

export interface Answer<T> {
  data: T;
  tag: string;
  text: string;
}

interface Sending {
  method?: string;
  query?: Parameters;
  body?: unknown; // data, or text that is already JSON
  ifMatch?: string;
  signal?: AbortSignal;
}

export async function ask<T>(path: string, sending: Sending = {}): Promise<Answer<T>> {
  const headers: Record<string, string> = { "x-refold": "1" };
  const method = sending.method ?? "GET";
  if (recording) return recordedAnswer(method, path, sending.query ?? {});
  if (method !== "GET") headers["content-type"] = "application/json";
  if (sending.ifMatch) headers["if-match"] = sending.ifMatch;
  if (method === "POST") headers["idempotency-key"] = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const body = method === "GET" || method === "DELETE" ? null : typeof sending.body === "string" ? sending.body : JSON.stringify(sending.body ?? {});
  let answer: Response;
  try {
    answer = await fetch(address(path, sending.query ?? {}), { method, headers, body, signal: sending.signal ?? null, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (connection.value !== "signed-out") connection.value = "gone";
    throw new NoAnswer("the server does not answer");
  }
  lastAnswer.value = Date.now();
  if (connection.value === "gone") connection.value = "quiet";
  const text = answer.status === 204 ? "" : await answer.text();
  if (!answer.ok) throw problemOf(answer, text);
  return { data: (text ? JSON.parse(text) : null) as T, tag: answer.headers.get("etag") ?? "", text };
}

async function recordedAnswer<T>(method: string, path: string, query: Parameters): Promise<Answer<T>> {
  const data = recording ? (answerFrom(recording, method, path, query) as T) : (null as T);
  return { data, tag: "", text: JSON.stringify(data) };
}

function problemOf(answer: Response, text: string): Problem {
  if (answer.status === 401) connection.value = "signed-out";
  try {
    return new Problem(JSON.parse(text) as ProblemDocument);
  } catch {
    return new Problem({ title: answer.statusText || "error", status: answer.status, detail: `the server answered ${answer.status}`, code: "unknown" });
  }
}

export async function get<T>(path: string, query: Parameters = {}, signal?: AbortSignal): Promise<T> {
  return (await ask<T>(path, signal ? { query, signal } : { query })).data;
}

export async function post<T>(path: string, body: unknown = {}, ifMatch = ""): Promise<T> {
  return (await ask<T>(path, { method: "POST", body, ifMatch })).data;
}

export function link(path: string, query: Parameters = {}): string {
  return address(path, query);
}

export function may(permission: string): boolean {
  return me.value?.permissions.includes(permission) ?? false;
}

/** Exchange the ticket of a sign-in link, which stands behind the `#` and is never sent in an address, for a cookie. */
export async function signIn(): Promise<void> {
  const ticket = /^#ticket=([^&]+)/.exec(location.hash)?.[1];
  if (ticket) {
    history.replaceState(null, "", `${location.pathname}#/`);
    await ask("sign-in", { method: "POST", body: { ticket: decodeURIComponent(ticket) } });
  }
  me.value = await get<Me>("me");
}

export async function signOut(): Promise<void> {
  await ask("sign-in", { method: "DELETE" });
  me.value = null;
  connection.value = "signed-out";
}
