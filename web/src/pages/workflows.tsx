// What can be started: the catalogue, one workflow with its runs and versions, a form to start it, and the editor.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, get, inNamespace, may, Problem, runPath } from "../api/client";
import { useResource } from "../api/resource";
import type { Page, RunRow } from "../api/types";
import type { Editor, Flaw } from "../editor/editor";
import type { SchemaNode } from "../editor/complete";
import { useKeys } from "../app/keys";
import { choose, go, href, place, runHref } from "../app/router";
import { JsonOf } from "../ui/json";
import { childrenOf, nodeOf } from "../ui/json-text";
import { Button, CommandLine, count, Empty, Loading, notify, Part, quoted, Trouble } from "../ui/parts";
import { beginning, type Faults, faultsOf, Labelled, type Schema, SchemaForm, type Text } from "../ui/schema-form";
import { Glyph, Status } from "../ui/status";
import { Moment, span, Took } from "../ui/time";

interface Entry {
  name: string;
  origin: "file" | "stored" | "code";
  version: number | null;
  problem: string | null;
  steps: string[] | null;
  inputs: { name: string; schema: Schema; required?: boolean }[] | null;
}

interface Whole extends Entry {
  source?: string;
  plan: unknown;
}

const ORIGINS: Record<Entry["origin"], string> = { file: "a file of the folder of playbooks", stored: "stored in the database", code: "Python code" };
const TABS: readonly [string, string][] = [["", "Start"], ["source", "Source"], ["runs", "Runs"], ["versions", "Versions"], ["plan", "Plan"]];
const NEW = "new workflow"; // a name with a space is none of a workflow
const BEGINNING = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: NAME}\nworkflow:\n  - step: begin\n    tool: {kind: noop}\n";

export default function Workflows() {
  const name = place.value.path[1];
  if (name === NEW) return <NewWorkflow />;
  return name ? <Workflow key={name} name={name} /> : <Catalogue />;
}

function Catalogue() {
  const { q = "" } = place.value.query;
  const entries = useResource<{ items: Entry[] }>(place.value.ns, (abort) => get(inNamespace("workflows"), {}, abort), true);
  const found = (entries.state.value.data?.items ?? []).filter((each) => each.name.toLowerCase().includes(q.toLowerCase()));
  const [at, setAt] = useState(-1);
  useKeys([
    { keys: "j", about: "next row", do: () => setAt(Math.min(at + 1, found.length - 1)) },
    { keys: "k", about: "previous row", do: () => setAt(Math.max(at - 1, 0)) },
    { keys: "Enter", about: "open", do: () => { const entry = found[at]; if (entry) go(["workflows", entry.name]); } },
  ]);
  return (
    <div class="page" data-page="workflows">
      <div class="page-head">
        <h1>Workflows</h1><span class="muted">{found.length ? count(found.length) : ""}</span><span class="spacer" />
        <input class="field" type="search" aria-label="Filter by name" placeholder="Filter by name" value={q} onInput={(event) => choose({ q: event.currentTarget.value }, true)} />
        <Button needs="write" kind="primary" onClick={() => go(["workflows", NEW])}>New workflow</Button>
      </div>
      <Part of={entries.state.value} lines={6}>
        {({ items }) => found.length ? (
          <div class="card table-scroll" tabIndex={0}><table class="plain">
            <thead><tr><th>Name</th><th>From</th><th class="num">Steps</th><th>Inputs</th><th><span class="sr">Start</span></th></tr></thead>
            <tbody>
              {found.map((entry, index) => (
                <tr key={entry.name} class={index === at ? "cursor" : ""}>
                  <td><a class="link strong wrap" href={href(["workflows", entry.name])}>{entry.name}</a>{entry.problem ? <div class="fault wrap">{entry.problem}</div> : null}</td>
                  <td class="soft">{entry.origin}{entry.version ? ` v${entry.version}` : ""}</td>
                  <td class="num">{entry.steps ? count(entry.steps.length) : "-"}</td>
                  <td class="soft wrap">{entry.inputs?.map((each) => each.name).join(", ")}</td>
                  <td class="num"><Button isSmall needs="start" why={entry.problem ? "it cannot be read" : ""} label={`Start ${entry.name}`} onClick={() => go(["workflows", entry.name])}>Start</Button></td>
                </tr>
              ))}
            </tbody>
          </table></div>
        ) : items.length ? (
          <div class="card"><Empty title={`No workflow is called like "${q}".`}><Button onClick={() => choose({ q: null })}>Show all</Button></Empty></div>
        ) : (
          <div class="card"><Empty title="There are no workflows yet."><span>Serve a folder of playbooks, or store one here:</span><CommandLine text="refold serve --playbooks FOLDER" /></Empty></div>
        )}
      </Part>
    </div>
  );
}

function Workflow({ name }: { name: string }) {
  const { tab = "" } = place.value.query;
  const found = useResource<Whole>(`${place.value.ns}/${name}`, (abort) => ask(inNamespace("workflows", name), { signal: abort }), true);
  const runs = useResource<Page<RunRow>>(`${place.value.ns}/${name}`, (abort) => get(inNamespace("runs"), { workflow: name, limit: 100 }, abort), true);
  const entry = found.state.value.data;
  const latest = runs.state.value.data?.items ?? [];
  return (
    <div class="page" data-page="workflows">
      <div class="page-head"><a class="soft" href={href("workflows")}>Workflows</a><span class="muted">/</span><h1 class="wrap">{name}</h1>
        {entry ? <span class="muted">{ORIGINS[entry.origin]}{entry.version ? `, version ${entry.version}` : ""}</span> : null}</div>
      {latest.length ? <Figures runs={latest} /> : null}
      <div class="tabs" role="tablist">
        {TABS.map(([key, title]) => <a key={key} role="tab" aria-selected={tab === key} href={href(["workflows", name], { tab: key })}>{title}</a>)}
      </div>
      <Part of={found.state.value} lines={6}>
        {(whole) => (
          <>
            {whole.problem ? <Trouble error={new Error(whole.problem)} /> : null}
            {tab === "source" ? <Source entry={whole} tag={found.state.value.tag} onSaved={found.reload} /> :
              tab === "runs" ? <Runs runs={latest} name={name} /> :
              tab === "versions" ? <Versions runs={latest} name={name} plan={whole.plan} /> :
              tab === "plan" ? <div class="card body"><JsonOf value={whole.plan} label="The plan" /></div> :
              <StartForm entry={whole} last={latest[0] ?? null} />}
          </>
        )}
      </Part>
    </div>
  );
}

const middle = (sorted: readonly number[], part: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;

/** The last runs in numbers. */
function Figures({ runs }: { runs: readonly RunRow[] }) {
  const over = runs.filter((run) => run.ended_at);
  const well = over.filter((run) => run.status === "completed" || run.status === "continued");
  const took = over.map((run) => (Date.parse(run.ended_at ?? "") - Date.parse(run.created_at)) / 1000).sort((a, b) => a - b);
  return (
    <div class="figures">
      <div><b>{count(runs.length)}{runs.length === 100 ? "+" : ""}</b><span class="label">last runs</span></div>
      <div><b>{over.length ? `${Math.round((100 * well.length) / over.length)} %` : "-"}</b><span class="label">of {count(over.length)} that are over went well</span></div>
      <div><b>{took.length ? span(middle(took, 0.5)) : "-"}</b><span class="label">half take at most</span></div>
      <div><b>{took.length ? span(middle(took, 0.95)) : "-"}</b><span class="label">95 of 100 take at most</span></div>
      <div class="dots" role="group" aria-label="Outcomes of the last runs, the newest first">{runs.slice(0, 40).map((run) => <a key={run.id} href={runHref(run.id)} aria-label={`${run.name || run.id.slice(0, 8)} ${run.status}`}><Glyph status={run.status} /></a>)}</div>
    </div>
  );
}

function Runs({ runs, name }: { runs: readonly RunRow[]; name: string }) {
  if (!runs.length) return <div class="card"><Empty title="It has not been started yet." /></div>;
  return (
    <div class="card table-scroll" tabIndex={0}><table class="plain">
      <thead><tr><th>Status</th><th>Name</th><th>Began</th><th>Took</th><th>Why</th></tr></thead>
      <tbody>
        {runs.slice(0, 30).map((run) => (
          <tr key={run.id}>
            <td><Status status={run.status} /></td>
            <td><a class="link" href={runHref(run.id)}>{run.name || run.id.slice(0, 8)}</a></td>
            <td><Moment at={run.created_at} /></td>
            <td><Took from={run.created_at} to={run.ended_at} /></td>
            <td class="wrap soft">{run.error?.message ?? run.error?.kind ?? ""}</td>
          </tr>
        ))}
        <tr><td colSpan={5}><a class="link" href={href("runs", { workflow: name })}>All runs of {name}</a></td></tr>
      </tbody>
    </table></div>
  );
}

// ---- starting

function schemaOf(entry: Entry): Schema {
  const inputs = entry.inputs ?? [];
  return { type: "object", properties: Object.fromEntries(inputs.map((each) => [each.name, each.schema])), required: inputs.filter((each) => each.required).map((each) => each.name) };
}

/** The input as the command line takes it: `-i name=JSON` for each member. */
function inputWords(input: Text): string {
  if (!input) return "";
  const node = nodeOf(input);
  return node.kind === "object" ? childrenOf(node).map((each) => ` -i ${quoted(`${each.key}=${each.node.text}`)}`).join("") : "";
}

function StartForm({ entry, last }: { entry: Whole; last: RunRow | null }) {
  const isDeclared = Boolean(entry.inputs?.length);
  const schema = useMemo(() => (isDeclared ? schemaOf(entry) : {}), [entry]);
  const [input, setInput] = useState<Text>(isDeclared ? beginning(schema) : undefined);
  const [name, setName] = useState("");
  const [key, setKey] = useState("");
  const [labels, setLabels] = useState("");
  const [error, setError] = useState("");
  const [fromServer, setFromServer] = useState<Faults>({});
  const [isChecked, setChecked] = useState(false);
  const own = faultsOf(schema, input, isDeclared);
  const pairs = labels.split(",").map((each) => each.trim()).filter(Boolean).map((each) => each.split(/[:=](.*)/s, 2) as [string, string?]);
  const again = () => {
    if (!last) return;
    get<{ text?: string; ref?: unknown }>(runPath(last.id, "input"), { values: "text" }).then(
      (found) => (found.text === undefined ? notify("that input is too large for a form", true) : setInput(found.text)),
      (problem: Error) => notify(problem.message, true),
    );
  };
  const start = () => {
    setChecked(true);
    if (Object.keys(own).length) return;
    const parts = [`"workflow":${JSON.stringify(entry.name)}`];
    if (input !== undefined) parts.push(`"input":${input}`);
    if (name) parts.push(`"name":${JSON.stringify(name)}`);
    if (key) parts.push(`"key":${JSON.stringify(key)}`);
    if (pairs.length) parts.push(`"labels":${JSON.stringify(Object.fromEntries(pairs))}`);
    ask<RunRow>(inNamespace("runs"), { method: "POST", body: `{${parts.join(",")}}` }).then(
      (answer) => go(["runs", answer.data.id]),
      (problem: Error) => {
        const found: Record<string, string> = {};
        if (problem instanceof Problem) for (const each of problem.document.errors ?? []) found[(each.pointer ?? "").replace(/^\/?input/, "")] = each.detail ?? problem.message;
        setFromServer(found);
        setError(problem.message);
      },
    );
  };
  const change = (text: Text) => {
    setInput(text);
    setFromServer({});
    setError("");
  };
  const command = `refold run ${entry.origin === "code" ? quoted(entry.name) : `${quoted(entry.name)}.yaml`} --detach${inputWords(input)}${name ? ` --name ${quoted(name)}` : ""}${key ? ` --key ${quoted(key)}` : ""}`;
  return (
    <section class="card" aria-label="Start a run">
      <header><h2>Start a run</h2><span class="spacer" />
        {last ? <Button isSmall needs="values" onClick={again}>Use the input of the last run</Button> : null}</header>
      <div class="body col gap-l">
        {isDeclared ? null : <p class="soft">The workflow declares no inputs. What is given here takes the place of values of the same name in its <code>workload</code>.</p>}
        <SchemaForm schema={schema} name="input" text={input} onChange={change} faults={isChecked ? { ...own, ...fromServer } : fromServer} />
        <div class="form">
          <Labelled id="start-name" label="Name of the run" isRequired={false}><input class="field" id="start-name" value={name} onInput={(event) => setName(event.currentTarget.value)} /></Labelled>
          <Labelled id="start-key" label="Key" isRequired={false} about="the same key is the same run, for ever"><input class="field" id="start-key" value={key} onInput={(event) => setKey(event.currentTarget.value)} /></Labelled>
          <Labelled id="start-labels" label="Labels" isRequired={false} about="team: shop, day: monday"><input class="field" id="start-labels" value={labels} onInput={(event) => setLabels(event.currentTarget.value)} /></Labelled>
        </div>
        {error ? <p class="fault wrap" role="alert">{error}</p> : null}
        <div class="row buttons"><Button kind="primary" needs="start" why={entry.problem ? "the workflow cannot be read" : ""} onClick={start}>Start</Button></div>
        <CommandLine text={command} />
      </div>
    </section>
  );
}

// ---- the source

interface Checked {
  valid: boolean;
  problems: Flaw[];
}

function Source({ entry, tag, onSaved }: { entry: Whole; tag: string; onSaved: () => void }) {
  if (entry.source === undefined) return <div class="card"><Empty title="The source is not shown."><span>Seeing it needs the permission "values".</span></Empty></div>;
  if (!entry.source) return <div class="card"><Empty title="This workflow is Python code."><span>Its source is where the code is.</span></Empty></div>;
  const isStored = entry.origin === "stored";
  return (
    <section class="col gap-l" aria-label="Source">
      {isStored ? null : <p class="soft">This is {ORIGINS[entry.origin]}. What is saved here is stored in the database, and takes the place of the file from then on.</p>}
      <Editing text={entry.source} name={entry.name} tag={isStored ? tag : ""} onSaved={onSaved} />
    </section>
  );
}

function NewWorkflow() {
  const [name, setName] = useState("");
  const text = useMemo(() => BEGINNING, []);
  return (
    <div class="page" data-page="workflows">
      <div class="page-head"><a class="soft" href={href("workflows")}>Workflows</a><span class="muted">/</span><h1>New workflow</h1></div>
      <div class="form"><Labelled id="workflow-name" label="Name" isRequired about="as in metadata.name"><input class="field" id="workflow-name" value={name} onInput={(event) => setName(event.currentTarget.value)} /></Labelled></div>
      <Editing text={text} name={name} tag="" onSaved={() => go(["workflows", name])} />
    </div>
  );
}

let knownSchema: SchemaNode | null = null;

function Editing({ text, name, tag, onSaved }: { text: string; name: string; tag: string; onSaved: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const [now, setNow] = useState(text);
  const [flaws, setFlaws] = useState<readonly Flaw[]>([]);
  const [error, setError] = useState<Error | null>(null);
  const [isOpen, setOpen] = useState(false);
  const mayWrite = may("write");
  useEffect(() => {
    let isGone = false;
    const check = async (source: string): Promise<readonly Flaw[]> => {
      if (!mayWrite) return [];
      const found = (await ask<Checked>(inNamespace("workflows:check"), { method: "POST", body: { definition: source } })).data;
      if (!isGone) setFlaws(found.problems);
      return found.problems;
    };
    if (!knownSchema) get<SchemaNode>(inNamespace("workflows:schema")).then((found) => { knownSchema = found; }, () => undefined);
    import("../editor/editor").then(({ openEditor }) => {
      if (isGone || !box.current) return;
      setOpen(true);
      editor.current = openEditor(box.current, { text, label: `Source of ${name || "the new workflow"}`, isReadOnly: !mayWrite, schema: () => knownSchema, check, onChange: setNow });
    }, setError);
    return () => {
      isGone = true;
      editor.current?.close();
    };
  }, [text]);
  const save = () => {
    ask(inNamespace("workflows", name), { method: "PUT", body: { definition: now }, ifMatch: tag }).then(
      () => { notify(`${name} is saved`); onSaved(); },
      (problem: Error) => {
        if (problem instanceof Problem && problem.document.errors) setFlaws(problem.document.errors.map((each) => ({ detail: problem.message, ...each })));
        setError(problem);
      },
    );
  };
  const why = !name ? "it needs a name" : flaws.length ? `${count(flaws.length)} ${flaws.length === 1 ? "thing is" : "things are"} wrong` : tag && now === text ? "nothing has changed" : "";
  return (
    <div class="col gap-l">
      {isOpen ? null : error ? null : <Loading lines={6} />}
      <div class="editor" ref={box} hidden={!isOpen} />
      {flaws.length ? (
        <ul class="flaws" aria-label="What is wrong">
          {flaws.slice(0, 20).map((flaw, index) => (
            <li key={index}><button type="button" class="mini" onClick={() => editor.current?.goTo(flaw.line ?? 1, flaw.column ?? 1)}>
              {flaw.line ? `${flaw.line}:${flaw.column ?? 1} ` : ""}<b>{flaw.code}</b> {flaw.detail}{flaw.hint ? <span class="muted"> {flaw.hint}</span> : null}
            </button></li>
          ))}
        </ul>
      ) : <p class="muted" role="status">{mayWrite ? "Nothing is wrong." : ""}</p>}
      {error ? <Trouble error={error} /> : null}
      <div class="row buttons"><Button kind="primary" needs="write" why={why} onClick={save}>Save</Button></div>
      <CommandLine text={`refold validate ${quoted(name || "NAME")}.yaml`} />
    </div>
  );
}

// ---- versions

function Versions({ runs, name, plan }: { runs: readonly RunRow[]; name: string; plan: unknown }) {
  const { compare = "" } = place.value.query;
  const versions = new Map<string, RunRow[]>();
  for (const run of runs) versions.set(run.plan, [...(versions.get(run.plan) ?? []), run]);
  const other = useResource<unknown>(compare, (abort) => get(inNamespace("plans", compare), {}, abort));
  if (!versions.size) return <div class="card"><Empty title="No version of it has run yet." /></div>;
  return (
    <section class="col gap-l" aria-label="Versions">
      <div class="card table-scroll" tabIndex={0}><table class="plain">
        <thead><tr><th>Plan</th><th class="num">Runs</th><th>First</th><th>Last</th><th>Outcomes</th><th><span class="sr">Compare</span></th></tr></thead>
        <tbody>
          {[...versions].map(([hash, found]) => (
            <tr key={hash}>
              <td><code>{hash.slice(0, 12)}</code></td>
              <td class="num">{count(found.length)}</td>
              <td><Moment at={found[found.length - 1]?.created_at} /></td>
              <td><Moment at={found[0]?.created_at} /></td>
              <td><span class="dots">{found.slice(0, 20).map((run) => <a key={run.id} href={runHref(run.id)} aria-label={`${run.name || run.id.slice(0, 8)} ${run.status}`}><Glyph status={run.status} /></a>)}</span></td>
              <td class="num"><Button isSmall needs="values" pressed={compare === hash} onClick={() => choose({ compare: compare === hash ? null : hash })}>Compare with now</Button></td>
            </tr>
          ))}
        </tbody>
      </table></div>
      {compare ? <Part of={other.state.value}>{(before) => <Difference before={lines(planOf(before))} after={lines(plan)} name={name} />}</Part> : null}
    </section>
  );
}

const planOf = (found: unknown) => (typeof found === "object" && found !== null && "plan" in found ? (found as { plan: unknown }).plan : found);

/** An object with its keys in order, so that only what differs differs. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, each]) => [key, ordered(each)]));
}

const lines = (value: unknown) => JSON.stringify(ordered(value), null, 2).split("\n");

function Difference({ before, after, name }: { before: readonly string[]; after: readonly string[]; name: string }) {
  const found = useMemo(() => difference(before, after), [before.join("\n"), after.join("\n")]);
  if (!found.some(([sign]) => sign !== " ")) return <div class="card"><Empty title={`${name} is still the same plan.`} /></div>;
  return (
    <pre class="card source diff" role="group" aria-label="What has changed">
      {found.map(([sign, text], index) => sign === "…" ? <div key={index} class="muted">…</div> : <div key={index} class={sign === "+" ? "add" : sign === "-" ? "del" : ""}>{sign} {text}</div>)}
    </pre>
  );
}

type Changed = [sign: string, text: string];
const AROUND = 3; // lines around a change
const MOST = 3000; // lines that are compared one by one

function difference(before: readonly string[], after: readonly string[]): Changed[] {
  let first = 0;
  while (first < before.length && first < after.length && before[first] === after[first]) first++;
  let last = 0;
  while (last < before.length - first && last < after.length - first && before[before.length - 1 - last] === after[after.length - 1 - last]) last++;
  const a = before.slice(first, before.length - last);
  const b = after.slice(first, after.length - last);
  const middlePart = a.length * b.length > MOST * MOST ? [...a.map((text): Changed => ["-", text]), ...b.map((text): Changed => ["+", text])] : longest(a, b);
  const all: Changed[] = [...before.slice(0, first).map((text): Changed => [" ", text]), ...middlePart, ...before.slice(before.length - last).map((text): Changed => [" ", text])];
  const near = all.map((_, index) => all.slice(Math.max(0, index - AROUND), index + AROUND + 1).some(([sign]) => sign !== " "));
  return all.flatMap((each, index): Changed[] => (near[index] ? [each] : near[index - 1] ? [["…", ""]] : []));
}

function longest(a: readonly string[], b: readonly string[]): Changed[] {
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? (table[(i + 1) * width + j + 1] as number) + 1 : Math.max(table[(i + 1) * width + j] as number, table[i * width + j + 1] as number);
    }
  }
  const found: Changed[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i] as string]);
      i++;
      j++;
    } else if (j < b.length && (i === a.length || (table[i * width + j + 1] as number) > (table[(i + 1) * width + j] as number))) found.push(["+", b[j++] as string]);
    else found.push(["-", a[i++] as string]);
  }
  return found;
}
