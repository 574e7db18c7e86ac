// The API, from the document that the server gives: every route with its permission, and a request to copy and to send.
import { useMemo, useState } from "preact/hooks";
import { link, may } from "../api/client";
import { useResource } from "../api/resource";
import { choose, place } from "../app/router";
import { Json, JsonOf } from "../ui/json";
import { bytes, Button, CommandLine, count, Empty, notify, Part, quoted } from "../ui/parts";
import { Labelled } from "../ui/schema-form";

interface Parameter {
  name: string;
  in: "path" | "query";
  required: boolean;
  schema: Record<string, unknown>;
}

interface Operation {
  summary: string;
  parameters: Parameter[];
  requestBody?: { content: Record<string, { schema: { $ref?: string } }> };
  responses: Record<string, unknown>;
  "x-refold-permission": string;
}

interface OpenApi {
  info: { version: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, unknown> };
}

interface Route {
  method: string;
  path: string;
  operation: Operation;
}

const OPEN = ["open", "ticket", "any"];

export default function Api() {
  const { q = "", open = "" } = place.value.query;
  const described = useResource<OpenApi>("openapi", async (abort) => {
    const answer = await fetch(new URL("openapi.json", document.baseURI), { signal: abort });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return (await answer.json()) as OpenApi;
  });
  const routes = useMemo(() => routesOf(described.state.value.data), [described.state.value.data]);
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = routes.filter((route) => words.every((word) => `${route.method} ${route.path} ${route.operation.summary} ${route.operation["x-refold-permission"]}`.toLowerCase().includes(word)));
  return (
    <div class="page" data-page="api">
      <div class="page-head">
        <h1>API</h1>
        <span class="muted">{routes.length ? `${count(routes.length)} routes; everything that this page does is one of them` : ""}</span>
        <span class="spacer" />
        <input class="field" type="search" aria-label="Filter the routes" placeholder="Filter: gates, POST, operate …" value={q} onInput={(event) => choose({ q: event.currentTarget.value }, true)} />
        <a class="btn" href={new URL("openapi.json", document.baseURI).href}>openapi.json</a>
      </div>
      <p class="soft">Programs send <code>Authorization: Bearer TOKEN</code>; tokens are made in Settings. <code>{"{ns}"}</code> is the namespace, here <code>{place.value.ns}</code>.</p>
      <Part of={described.state.value} lines={8}>
        {(document) => found.length ? (
          <div class="card rows">
            {found.map((route) => <RouteRow key={`${route.method} ${route.path}`} route={route} schemas={document.components.schemas} isOpen={open === `${route.method} ${route.path}`} />)}
          </div>
        ) : <div class="card"><Empty title={`No route fits "${q}".`}><Button onClick={() => choose({ q: null })}>Show all routes</Button></Empty></div>}
      </Part>
    </div>
  );
}

function routesOf(document: OpenApi | null): Route[] {
  if (!document) return [];
  return Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })));
}

function RouteRow({ route, schemas, isOpen }: { route: Route; schemas: Record<string, unknown>; isOpen: boolean }) {
  const need = route.operation["x-refold-permission"];
  return (
    <section class="gate" aria-label={`${route.method} ${route.path}`}>
      <div class="gate-head">
        <button type="button" class="gate-title" aria-expanded={isOpen} onClick={() => choose({ open: isOpen ? null : `${route.method} ${route.path}` })}>
          <span class={`method ${route.method.toLowerCase()}`}>{route.method}</span>
          <code class="wrap">{route.path}</code>
        </button>
        <span class="gate-about"><span class="soft">{route.operation.summary}</span><span class="badge tone-quiet">{need}</span></span>
      </div>
      {isOpen ? <RouteBody route={route} schemas={schemas} /> : null}
    </section>
  );
}

function RouteBody({ route, schemas }: { route: Route; schemas: Record<string, unknown> }) {
  const { method, path, operation } = route;
  const [values, setValues] = useState<Record<string, string>>({ ns: place.value.ns });
  const [body, setBody] = useState("{}");
  const [answer, setAnswer] = useState<{ status: number; text: string; ms: number } | null>(null);
  const [isBusy, setBusy] = useState(false);
  const reference = operation.requestBody?.content["application/json"]?.schema.$ref?.split("/").pop();
  const need = operation["x-refold-permission"];
  const missing = operation.parameters.find((each) => each.required && !values[each.name]);
  const why = missing ? `${missing.name} is missing` : !OPEN.includes(need) && !may(need) ? `needs the permission "${need}"` : isBusy ? "under way" : "";
  const address = addressOf(route, values);
  const send = async () => {
    setBusy(true);
    const began = performance.now();
    const abort = new AbortController();
    try {
      const headers: Record<string, string> = { "x-refold": "1", ...(method === "GET" ? {} : { "content-type": "application/json" }) };
      const got = await fetch(new URL(address.slice(1), document.baseURI), { method, headers, body: reference ? body : null, signal: abort.signal });
      const text = got.headers.get("content-type")?.startsWith("text/event-stream") ? "a stream: read it with a program" : await got.text();
      abort.abort();
      setAnswer({ status: got.status, text, ms: Math.round(performance.now() - began) });
    } catch (error) {
      notify((error as Error).message, true);
    }
    setBusy(false);
  };
  return (
    <div class="gate-body">
      {operation.parameters.length ? (
        <div class="form">
          {operation.parameters.map((each) => {
            const id = `${method}${path}${each.name}`.replace(/\W/g, "-");
            return (
              <Labelled key={each.name} id={id} label={each.name} isRequired={each.required} about={`${each.in === "path" ? "in the address" : "after ?"}; ${kindOf(each.schema)}`}>
                <input class="field" id={id} value={values[each.name] ?? ""} onInput={(event) => setValues({ ...values, [each.name]: event.currentTarget.value })} />
              </Labelled>
            );
          })}
        </div>
      ) : null}
      {reference ? (
        <div class="form">
          <Labelled id={`body-${reference}`} label="Body" isRequired about={`JSON, a ${reference}`}>
            <textarea class="field" rows={4} spellcheck={false} id={`body-${reference}`} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
          </Labelled>
          <JsonOf value={schemas[reference]} label={`The schema of ${reference}`} />
        </div>
      ) : null}
      <CommandLine text={curl(method, address, reference ? body : "")} />
      <div class="row buttons"><Button kind={method === "GET" ? "primary" : "danger"} why={why} onClick={() => void send()}>Send</Button>
        {answer ? <span class={answer.status < 400 ? "soft" : "fault"} role="status">{answer.status}, {bytes(answer.text.length)}, {answer.ms} ms</span> : null}</div>
      {answer ? <Shown text={answer.text} /> : null}
    </div>
  );
}

function kindOf(schema: Record<string, unknown>): string {
  if (Array.isArray(schema["enum"])) return schema["enum"].join(", ");
  return typeof schema["type"] === "string" ? schema["type"] : "text";
}

function addressOf({ path, operation }: Route, values: Readonly<Record<string, string>>): string {
  const filled = path.replace(/\{(\w+)\}/g, (whole, name: string) => (values[name] ? encodeURIComponent(values[name]) : whole));
  const pairs = new URLSearchParams();
  for (const each of operation.parameters) if (each.in === "query" && values[each.name]) pairs.set(each.name, values[each.name] ?? "");
  const text = pairs.toString();
  return filled + (text ? `?${text}` : "");
}

function curl(method: string, address: string, body: string): string {
  const base = new URL(link("me")).origin;
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method]), "-H", '"Authorization: Bearer $REFOLD_TOKEN"'];
  if (body) parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(body));
  return [...parts, quoted(base + address)].join(" ");
}

const MOST = 200_000; // characters of an answer that are shown

function Shown({ text }: { text: string }) {
  if (text.length > MOST) return <p class="muted">The answer is too large to be shown here ({bytes(text.length)}).</p>;
  try {
    JSON.parse(text);
  } catch {
    return <pre class="wrap card body">{text}</pre>;
  }
  return <Json text={text} label="The answer" />;
}
