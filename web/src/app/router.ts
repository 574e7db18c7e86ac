// Where the page is. All that is chosen stands in the address, behind the `#`, so that a link shows the same to others.
import { batch, signal } from "@preact/signals";

export interface Place {
  ns: string;
  path: readonly string[];
  query: Readonly<Record<string, string>>;
}

export type Query = Record<string, string | number | null | undefined>;

export const DEFAULT_NAMESPACE = "default";
export const place = signal<Place>(read(location.hash));

function read(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2) as [string, string?];
  const parts = path.split("/").filter(Boolean).map(decoded);
  const ns = parts[0] === "ns" && parts[1] ? parts[1] : DEFAULT_NAMESPACE;
  const rest = parts[0] === "ns" ? parts.slice(2) : parts;
  const pairs: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(query)) pairs[name] = value;
  return { ns, path: rest.length ? rest : ["now"], query: pairs };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function written(query: Query): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") pairs.set(name, String(value));
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}

/** The address of a place in this namespace. */
export function href(path: string | readonly string[], query: Query = {}): string {
  const parts = typeof path === "string" ? path.split("/").filter(Boolean) : path;
  return `#/ns/${encodeURIComponent(place.value.ns)}/${parts.map(encodeURIComponent).join("/")}${written(query)}`;
}

export function runHref(run: string, query: Query = {}): string {
  return href(["runs", run], query);
}

export function go(path: string | readonly string[], query: Query = {}): void {
  location.hash = href(path, query).slice(1);
}

/** Change what is chosen on this page. What is dragged or typed replaces the address; what is pressed adds to the way back. */
export function choose(changes: Query, replaces = false): void {
  const address = href(place.value.path, { ...place.value.query, ...changes });
  if (address === location.hash) return;
  if (replaces) {
    history.replaceState(null, "", address);
    place.value = read(address);
  } else {
    location.hash = address.slice(1);
  }
}

export function startRouter(): void {
  addEventListener("hashchange", () => batch(() => (place.value = read(location.hash))));
  place.value = read(location.hash);
}
