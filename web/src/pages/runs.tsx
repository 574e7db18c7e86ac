// All runs: filters as chips that can be taken away, numbers beside them, a strip of time, and why each run waits or failed.
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { get, inNamespace, may } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import type { Page, RunRow } from "../api/types";
import { useKeys } from "../app/keys";
import { prefer, preferences } from "../app/preferences";
import { choose, go, place, runHref } from "../app/router";
import { ManyDialog, ManyProgress, type Operation } from "../ui/many";
import { askFor, Button, Chip, CommandLine, copy, count, Empty, Loading, notify, Trouble } from "../ui/parts";
import { Status, toneOf } from "../ui/status";
import { inZone, Moment, momentText, ms, Took, zoneName } from "../ui/time";
import { tip } from "../ui/tip";
import { VirtualList } from "../ui/virtual";
import { post } from "../api/client";

const FILTERS = ["status", "workflow", "name", "key", "label", "since", "until", "parent", "error"] as const;
const PART = 100;
const BIN_ORDER = ["failed", "cancelled", "paused", "waiting", "running", "ending", "continued", "completed"];

interface SummaryShown {
  count: number;
  capped: boolean;
  from: string;
  until: string;
  bins: Record<string, number>[];
  status: Record<string, number>;
  workflow: Record<string, number>;
}

type Verb = "pause" | "resume" | "cancel" | "retry";
const VERBS: readonly Verb[] = ["pause", "resume", "cancel", "retry"];
const PAST: Record<Verb, string> = { pause: "paused", resume: "resumed", cancel: "cancelled", retry: "retried" };
const ALL_OF_THEM: Record<Verb, string> = {
  pause: "No further step of them begins; what is being executed is finished first.",
  resume: "Each continues where it was paused.",
  cancel: "Their open steps are stopped, and their child runs are cancelled too. Finalizers still run.",
  retry: "Each is retried from the step that failed; what is finished in it is not done again.",
};

/** The filter of the list, as an operation takes it. */
function wantedBy(filter: Record<string, string>): Record<string, unknown> {
  const { status, label, ...same } = filter;
  const colon = label?.indexOf(":") ?? -1;
  return { ...same, ...(status ? { status: [status] } : {}), ...(label ? { labels: { [label.slice(0, colon)]: label.slice(colon + 1) } } : {}) };
}

function filterOf(query: Readonly<Record<string, string>>): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of FILTERS) if (query[name]) found[name] = query[name] as string;
  return found;
}

export function Runs() {
  const filter = filterOf(place.value.query);
  const key = JSON.stringify([place.value.ns, filter]);
  const [rows, setRows] = useState<RunRow[]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const [state, setState] = useState<{ isLoading: boolean; error: Error | null }>({ isLoading: true, error: null });
  const [latest, setLatest] = useState<RunRow[]>([]);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isAll, setAll] = useState(false); // what is chosen is everything that fits, also what is not shown
  const [asked, setAsked] = useState<Verb | null>(null); // of all that fits
  const [operation, setOperation] = useState<Operation | null>(null);
  const [at, setAt] = useState(-1); // the row of the keyboard; none before a key is pressed
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const known = useRef(new Set<string>());
  const summary = useResource(`${key}|summary`, (abort) => get<SummaryShown>(inNamespace("runs:summary"), { ...filter, bins: 60 }, abort), true);
  const isFetching = useRef(false);

  const load = (isMore: boolean) => {
    if (isFetching.current && isMore) return;
    isFetching.current = true;
    get<Page<RunRow>>(inNamespace("runs"), { ...filter, why: true, limit: PART, cursor: isMore ? cursor : "" }).then((page) => {
      isFetching.current = false;
      if (!isMore) known.current = new Set();
      for (const each of page.items) known.current.add(each.id);
      setRows((before) => (isMore ? [...before, ...page.items] : page.items));
      setCursor(page.next_cursor);
      setState({ isLoading: false, error: null });
    }, (error: Error) => {
      isFetching.current = false;
      setState({ isLoading: false, error });
    });
  };
  useEffect(() => {
    setState({ isLoading: true, error: null });
    setRows([]);
    setLatest([]);
    setAll(false);
    setAt(-1);
    load(false);
    // Rows that are shown change in place; new ones wait, so that nothing jumps.
    const pairs = Object.entries({ ...filter, why: "true", limit: "50" }).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    return subscribe(`runs?${pairs.join(";")}`, (event) => {
      if (event.name !== "runs") return;
      const items = (event.data as { items: RunRow[] }).items;
      const changed = new Map(items.map((each) => [each.id, each]));
      setRows((before) => before.map((each) => changed.get(each.id) ?? each));
      setLatest(items);
      summary.reload();
    });
  }, [key]);
  const fresh = state.isLoading ? [] : latest.filter((each) => !known.current.has(each.id));
  const showFresh = () => {
    for (const each of fresh) known.current.add(each.id);
    setRows((before) => [...fresh, ...before]);
  };

  const field = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState("");
  const move = (by: number) => setAt((now) => Math.max(0, Math.min(rows.length - 1, now + by)));
  const toggle = (id: string) => setSelected((before) => {
    const next = new Set(before);
    if (!next.delete(id)) next.add(id);
    return next;
  });
  const reveal = useMemo(() => ({ index: at }), [at]);
  useKeys([
    { keys: "j", about: "next row", do: () => move(1) },
    { keys: "k", about: "previous row", do: () => move(-1) },
    { keys: "Enter", about: "open the row", do: () => { const row = rows[at]; if (row) go(["runs", row.id]); } },
    { keys: "x", about: "select the row", do: () => { const row = rows[at]; if (row) toggle(row.id); } },
    { keys: "/", about: "filter", do: () => field.current?.focus() },
    { keys: ".", about: "actions on what is selected", do: () => act("cancel") },
  ]);
  const chosenRows = rows.filter((each) => selected.has(each.id));
  const act = (verb: Verb) => {
    if (isAll) return setAsked(verb);
    if (!chosenRows.length) return;
    const able = chosenRows.filter((each) => canDo(verb, each.status));
    askFor({
      title: `${verb[0]?.toUpperCase()}${verb.slice(1)} ${count(able.length)} ${able.length === 1 ? "run" : "runs"}`,
      body: () => <><p>{count(able.length)} of {count(chosenRows.length)} selected runs can be {PAST[verb]} now{able.length < chosenRows.length ? "; the others are left as they are" : ""}.</p>
        {able[0] ? <CommandLine text={`refold runs ${verb} ${able[0].name || able[0].id}${able.length > 1 ? `   # and ${able.length - 1} more` : ""}`} /> : null}</>,
      actions: able.length ? [{ label: verb, kind: verb === "cancel" ? "danger" : "primary", do: async () => {
        const outcomes = await Promise.allSettled(able.map((each) => post(inNamespace("runs", each.id, verb), {}, `"${each.plan.slice(0, 16)}-${each.head}"`)));
        const failed = outcomes.filter((each) => each.status === "rejected");
        notify(failed.length ? `${count(able.length - failed.length)} done; ${count(failed.length)} refused: ${(failed[0] as PromiseRejectedResult).reason.message}` : `${count(able.length)} done`, failed.length > 0);
        setSelected(new Set());
        load(false);
      } }] : [],
    });
  };
  const chips = Object.entries(filter);
  const saved = preferences.value.filters;
  const search = (event: Event) => {
    event.preventDefault();
    const text = typed.trim();
    setTyped("");
    if (!text) return;
    const pair = /^(status|workflow|name|key|label|since|until|parent|error)[:=](.+)$/.exec(text);
    if (pair) choose({ [pair[1] as string]: pair[2] ?? "" });
    else if (/^[0-9a-f]{32}$/.test(text)) go(["runs", text]);
    else choose({ name: text });
  };
  return (
    <div class="page fill runs-page" data-page="runs" data-state={state.isLoading ? "loading" : state.error ? "failed" : "ready"}>
      <div class="page-head">
        <h1>Runs</h1>
        {summary.state.value.data ? <span class="muted">{count(summary.state.value.data.count, summary.state.value.data.capped)}{chips.length ? " that fit" : ""}</span> : null}
        <span class="spacer" />
        {rows.length && !isAll ? <Button isSmall kind="quiet" needs="operate" hover="Act on all runs of this list, also on those that are not shown" onClick={() => setAll(true)}>Select all</Button> : null}
        <button type="button" class="btn quiet small" {...tip("Copy the request of this list")} onClick={() => void copy(`GET /api/v1/${inNamespace("runs")}${chips.length ? `?${new URLSearchParams(filter)}` : ""}`, "request copied")}>API request</button>
        <button type="button" class="btn quiet small" {...tip("Copy the command of this list")} onClick={() => void copy(`refold runs list${chips.map(([name, value]) => ` --${name} '${value}'`).join("")}`, "command copied")}>Command</button>
      </div>
      <div class="filters">
        <form onSubmit={search}><input ref={field} class="field" type="search" list="filter-words" placeholder="name, id, or error: timeout" aria-label="Filter" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          <datalist id="filter-words">{Object.keys(summary.state.value.data?.workflow ?? {}).map((each) => <option key={each} value={`workflow:${each}`} />)}{BIN_ORDER.map((each) => <option key={each} value={`status:${each}`} />)}</datalist></form>
        {chips.filter(([name]) => name !== "status").map(([name, value]) => <Chip key={name} name={name} value={name === "since" || name === "until" ? shown(value) : value} onRemove={() => choose({ [name]: null })} />)}
        <StatusChips summary={summary.state.value.data} chosen={filter["status"] ?? ""} />
        <span class="grow" />
        {saved.map((each) => <button key={each.name} type="button" class="chip" onClick={() => go("runs", each.query)}>{each.name}</button>)}
        {chips.length ? <button type="button" class="btn quiet small" onClick={() => prefer({ filters: [...saved.filter((each) => JSON.stringify(each.query) !== JSON.stringify(filter)), { name: chips.map(([, value]) => value).join(" ").slice(0, 40), query: filter }] })}>Save the filter</button> : null}
        {saved.length ? <button type="button" class="btn quiet small" onClick={() => prefer({ filters: saved.filter((each) => JSON.stringify(each.query) !== JSON.stringify(filter)).length === saved.length ? [] : saved.filter((each) => JSON.stringify(each.query) !== JSON.stringify(filter)) })}>Forget</button> : null}
      </div>
      {summary.state.value.data && summary.state.value.data.count > 1 ? <RunStrip summary={summary.state.value.data} /> : null}
      {selected.size || isAll ? (
        <div class="selection" role="status"><b>{isAll ? (chips.length ? "All that fit" : "All runs") : `${count(selected.size)} selected`}</b>
          {VERBS.map((verb) => <Button key={verb} isSmall needs="operate" why={isAll || chosenRows.some((each) => canDo(verb, each.status)) ? "" : `none of them can be ${PAST[verb]}`} {...(verb === "cancel" ? { kind: "danger" as const } : {})} onClick={() => act(verb)}>{verb}{isAll ? " …" : ""}</Button>)}
          {isAll ? <span class="muted">they are counted first</span> : <button type="button" class="btn quiet small" onClick={() => setAll(true)}>{chips.length ? "all that fit" : "all runs"}</button>}
          <button type="button" class="btn quiet small" onClick={() => { setSelected(new Set()); setAll(false); }}>clear</button></div>
      ) : null}
      {asked ? <ManyDialog title={`${asked[0]?.toUpperCase()}${asked.slice(1)} all ${chips.length ? "that fit" : "runs"}`} action={asked} filter={wantedBy(filter)} about={ALL_OF_THEM[asked]} onClose={() => setAsked(null)} onGone={(gone) => { setOperation(gone); setAll(false); setSelected(new Set()); }} /> : null}
      {operation ? <ManyProgress key={operation.id} operation={operation} onOver={() => load(false)} /> : null}
      {state.error ? <Trouble error={state.error} onAgain={() => load(false)} /> : null}
      {fresh.length ? <button type="button" class="btn small more-runs" onClick={showFresh}>{count(fresh.length)} new</button> : null}
      {state.isLoading ? <Loading lines={8} /> : rows.length ? (
        <div class="runs-grid">
          <div class="head-gutter"><div class="run-row head" aria-hidden="true"><span class="check" /><span>status</span><span>name</span><span class="workflow">workflow</span><span class="began">began</span><span>took</span><span class="why-cell">why</span></div></div>
          <VirtualList label="Runs" count={rows.length} rowHeight={innerWidth <= 820 ? 52 : 36} reveal={reveal} onRange={(_, last) => { if (cursor && last > rows.length - 30) load(true); redraw(null); }} row={(index) => {
            const row = rows[index];
            if (!row) return null;
            return (
              <a class={`run-row ${index === at ? "cursor" : ""} ${row.why ? "has-why" : ""}`} href={runHref(row.id)} tabIndex={-1}>
                <input class="check" type="checkbox" aria-label={`Select ${row.name || row.id}`} disabled={!may("operate")} checked={selected.has(row.id)} onClick={(event) => { event.stopPropagation(); }} onChange={() => toggle(row.id)} />
                <Status status={row.status} />
                <span class="row name"><span class="cut" title={row.name || row.id}>{row.name || row.id.slice(0, 12)}</span>{Object.entries(row.labels ?? {}).slice(0, 2).map(([name, value]) => <span key={name} class="label">{name}:{value}</span>)}</span>
                <span class="cut soft workflow" title={row.workflow}>{row.workflow}</span>
                <span class="began"><Moment at={row.created_at} /></span>
                <Took from={row.created_at} to={row.ended_at} />
                <span class={`cut why-cell ${row.status === "failed" ? "tone-failed said" : "soft"}`} title={inZone(row.why ?? "")}>{inZone(row.why ?? "")}</span>
              </a>
            );
          }} />
        </div>
      ) : state.error ? null : chips.length ? (
        <Empty title="No run fits."><p>Lift a filter: {chips.map(([name, value]) => <button key={name} type="button" class="btn small" onClick={() => choose({ [name]: null })}>{name} {value} ×</button>)}</p></Empty>
      ) : <Empty title="There are no runs yet."><p>This command starts one:</p><CommandLine text="refold run FILE.yaml --detach" /></Empty>}
    </div>
  );
}

function shown(value: string): string {
  const at = Date.parse(value);
  return Number.isNaN(at) ? value : `${momentText(at)} ${zoneName.value}`;
}

function canDo(verb: string, status: string): boolean {
  const isOver = ["completed", "failed", "cancelled", "continued"].includes(status);
  if (verb === "retry") return status === "failed" || status === "cancelled";
  if (verb === "resume") return status === "paused";
  if (verb === "pause") return !isOver && status !== "paused";
  return !isOver;
}

/** Numbers of each status; those of the filter if there is one. */
function StatusChips({ summary, chosen }: { summary: SummaryShown | null; chosen: string }) {
  const statuses = ["running", "waiting", "paused", "failed", "completed", "cancelled"].filter((each) => each === chosen || (summary?.status[each] ?? 0) > 0);
  return (
    <span class="chips">
      {statuses.map((each) => (
        <button key={each} type="button" class={`chip tone-${toneOf(each)}`} aria-pressed={chosen === each} onClick={() => choose({ status: chosen === each ? null : each })}>
          <Status status={each} /> <b>{count(summary?.status[each] ?? 0, summary?.capped ?? false)}</b>
        </button>
      ))}
    </span>
  );
}

/** Runs by the time of their start and how they ended. A press shows those of one bar. */
function RunStrip({ summary }: { summary: SummaryShown }) {
  const most = Math.max(...summary.bins.map((each) => Object.values(each).reduce((sum, number) => sum + number, 0)), 1);
  const begin = ms(summary.from);
  const width = (ms(summary.until) - begin) / summary.bins.length;
  return (
    <figure aria-label={`Runs from ${momentText(begin)} on`}>
      <div class="run-strip">
        {summary.bins.map((counts, index) => {
          const from = begin + index * width;
          const parts = BIN_ORDER.filter((each) => counts[each]);
          const words = `${momentText(from).slice(5, 16)} to ${momentText(from + width).slice(11, 16)} ${zoneName.value}\n${parts.length ? parts.map((each) => `${counts[each]} ${each}`).join(", ") : "no run began"}`;
          return (
            <button key={index} type="button" class="bin" aria-label={words} tabIndex={parts.length ? 0 : -1} {...tip(words)} onClick={() => { if (parts.length) choose({ since: new Date(Math.floor(from)).toISOString(), until: new Date(Math.ceil(from + width)).toISOString() }); }}>
              {parts.map((each) => <i key={each} class={`tone-${toneOf(each)}`} style={{ height: `${Math.max(((counts[each] ?? 0) / most) * 100, 4)}%` }} />)}
            </button>
          );
        })}
      </div>
      <figcaption class="run-strip-legend"><span>{momentText(begin).slice(0, 16)}</span><span>{summary.capped ? `the newest ${count(summary.count)}` : ""}</span><span>{zoneName.value}</span></figcaption>
    </figure>
  );
}
