// One loop of a run: all its items as a strip, a window on them as a table, its failures in groups, and one item.
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { ask, get, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import type { Fault, Page, RunHead } from "../api/types";
import { useKeys } from "../app/keys";
import { choose, href, place, runHref } from "../app/router";
import { Marked } from "../ui/ansi";
import { Icon } from "../ui/icons";
import { Json } from "../ui/json";
import { childrenOf, nodeOf } from "../ui/json-text";
import { askFor, Button, Chip, CommandLine, count, Empty, Loading, notify, Part, quoted, Trouble } from "../ui/parts";
import { Status, toneOf } from "../ui/status";
import { span } from "../ui/time";
import { hideTip, showTip } from "../ui/tip";
import { VirtualList } from "../ui/virtual";
import { LogTail } from "../run/logs";
import { tagOf } from "../run/model";
import { FaultShown, faultText } from "../run/steps";

export interface Strip {
  step: string;
  visit: number;
  count: number;
  more: boolean;
  rate: number;
  left: number | null;
  states: string[];
  total: number[];
  from: number;
  until: number;
  bins: number[][];
}

interface Item {
  item: number;
  key: string | null;
  status: string;
  tries: number;
  value?: unknown;
  result?: unknown;
  error?: Fault | null;
  run?: string;
}

interface Groups {
  items: { fingerprint: string; kind: string; message?: string; count: number; items: number[] }[];
  failed: number;
  looked_at: number;
}

const WORST = ["failed", "running", "waiting", "cancelled", "skipped", "completed"];
const WINDOW = 200;
const STRIP_HEIGHT = 56;

export function Loop({ run, step }: { run: string; step: string }) {
  const { state = "", q = "", from = "", until = "", item = "" } = place.value.query;
  const head = useResource(run, (abort) => ask<RunHead>(runPath(run), { signal: abort }));
  const strip = useResource(`${run}/${step}`, (abort) => ask<Strip>(runPath(run, "loops", step, "strip"), { query: { bins: 400 }, signal: abort }));
  const [version, grow] = useReducer((n: number) => n + 1, 0);
  const [selected, setSelected] = useState<ReadonlySet<number>>(new Set());
  const live = strip.state.value.data;
  useEffect(() => subscribe(`loop:${run}/${step}`, (event) => {
    if (event.name !== "loop") return;
    strip.set(event.data as Strip);
    grow(null);
    head.reload();
  }), [run, step]);
  const row = head.state.value.data;
  const may = row?.may ?? [];
  const name = row?.name || run;
  const groups = useResource(`${run}/${step}|${live?.total[live.states.indexOf("failed")] ?? 0}`, (abort) => get<Groups>(runPath(run, "loops", step, "failures"), {}, abort), true);

  const steer = (verb: "retry" | "cancel", items: number[]) => {
    const tag = row ? tagOf(row) : "";
    const what = items.length ? `${count(items.length)} ${items.length === 1 ? "item" : "items"}` : `all ${count(groups.state.value.data?.failed ?? 0)} failed items`;
    askFor({
      title: `${verb === "retry" ? "Retry" : "Cancel"} ${what}`,
      body: () => <><p>{verb === "retry" ? `${what} of ${step} run again, and what depends on them. Completed items stay.` : `${what} of ${step} will not run, or are stopped.`}</p>
        <CommandLine text={`refold runs items ${verb} ${quoted(name)} ${quoted(step)}${items.slice(0, 12).map((each) => ` ${each}`).join("")}${items.length > 12 ? " …" : ""}`} /></>,
      actions: [{ label: verb === "retry" ? "Retry" : "Cancel the items", kind: verb === "retry" ? "primary" : "danger", do: async () => {
        try {
          await ask(runPath(run, "loops", step, `items:${verb}`), { method: "POST", body: { items }, ifMatch: tag });
          notify(`${what}: ${verb === "retry" ? "run again" : "cancelled"}`);
          setSelected(new Set());
        } catch (error) {
          notify((error as Error).message, true);
        }
        head.reload();
        strip.reload();
      } }],
    });
  };
  const why = !row ? "" : may.length || ["failed", "completed", "cancelled"].includes(row.status) ? "" : "this run cannot be changed now";
  return (
    <div class="page fill loop-page" data-page="loop" data-state={live ? "ready" : strip.state.value.error ? "failed" : "loading"}>
      <header class="run-head">
        <div class="page-head">
          <div class="col grow title">
            <div class="row crumbs muted"><a class="link" href={href("runs")}>Runs</a><span>/</span><a class="link cut" href={runHref(run)}>{name}</a></div>
            <div class="row"><h1 class="cut" title={step}>{step}</h1>{live ? <span class="badge tone-quiet">{count(live.count)} items{live.more ? " so far" : ""}</span> : null}</div>
          </div>
          <Button needs="operate" why={why || (selected.size ? "" : "select items first")} onClick={() => steer("cancel", [...selected])}>Cancel</Button>
          <Button needs="operate" kind="primary" why={why || (selected.size || groups.state.value.data?.failed ? "" : "no item has failed")} onClick={() => steer("retry", [...selected])}><Icon name="retry" />{selected.size ? `Retry ${count(selected.size)}` : "Retry all failed"}</Button>
        </div>
        {live ? <Totals strip={live} chosen={state} /> : null}
      </header>
      {strip.state.value.error && !live ? <Trouble error={strip.state.value.error} onAgain={strip.reload} /> : live ? <StripChart strip={live} from={from} until={until} /> : <Loading lines={2} />}
      <Part of={groups.state.value} lines={1}>{(data) => data.items.length ? <GroupList groups={data} q={q} /> : null}</Part>
      <div class={`sides ${item ? "with-detail" : ""}`}>
        <Items run={run} step={step} version={version} strip={live} selected={selected} onSelect={setSelected} />
        {item ? <ItemDetail key={item} run={run} step={step} item={Number(item)} /> : null}
      </div>
    </div>
  );
}

function Totals({ strip, chosen }: { strip: Strip; chosen: string }) {
  return (
    <div class="chips">
      {WORST.slice().reverse().map((state) => {
        const number = strip.total[strip.states.indexOf(state)] ?? 0;
        return number || chosen === state ? (
          <button key={state} type="button" class={`chip tone-${toneOf(state)}`} aria-pressed={chosen === state} onClick={() => choose({ state: chosen === state ? null : state, item: null })}>
            <Status status={state}>{state}</Status> <b>{count(number)}</b>
          </button>
        ) : null;
      })}
      {strip.rate > 0 ? <span class="muted">{strip.rate.toFixed(strip.rate < 10 ? 1 : 0)} items a second{strip.left ? `, ${span(strip.left)} left` : ""}</span> : null}
    </div>
  );
}

/** Each bin is coloured by the worst state in it, and is as high as it is full. */
export function StripChart({ strip, from, until }: { strip: Strip; from: string; until: string }) {
  const [range, setRange] = useState<[number, number] | null>(null);
  const drag = useRef<number | null>(null);
  const bins = strip.bins.length;
  const edge = (bin: number) => Math.floor(strip.from + ((strip.until - strip.from) * bin) / Math.max(bins, 1));
  const chosen: [number, number] | null = range ?? (from ? [((Number(from) - strip.from) / Math.max(strip.until - strip.from, 1)) * bins, ((Number(until || strip.until) - strip.from) / Math.max(strip.until - strip.from, 1)) * bins] : null);
  const over = strip.states.map((state) => ["completed", "failed", "cancelled", "skipped"].includes(state));
  const binAt = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    return Math.min(Math.max(((event.clientX - box.left) / box.width) * bins, 0), bins);
  };
  return (
    <figure class="strip">
      <svg viewBox={`0 0 ${Math.max(bins, 1)} ${STRIP_HEIGHT}`} preserveAspectRatio="none" height={STRIP_HEIGHT} role="img" aria-label={`${strip.count} items: ${strip.states.map((state, place) => `${strip.total[place]} ${state}`).join(", ")}`}
        onPointerDown={(event) => { drag.current = binAt(event); event.currentTarget.setPointerCapture(event.pointerId); }}
        onPointerMove={(event) => {
          const at = binAt(event);
          if (drag.current !== null) setRange([Math.floor(Math.min(drag.current, at)), Math.ceil(Math.max(drag.current, at))]);
          const bin = Math.min(Math.floor(at), bins - 1);
          const counts = strip.bins[bin];
          if (counts) showTip(`items ${count(edge(bin))} to ${count(edge(bin + 1) - 1)}\n${counts.map((number, place) => (number ? `${count(number)} ${strip.states[place]}` : "")).filter(Boolean).join(", ")}`, event.clientX + 10, event.clientY + 16);
        }}
        onPointerUp={(event) => {
          const at = binAt(event);
          const [a, b] = range && Math.abs(at - (drag.current ?? at)) > 0.5 ? range : [Math.floor(at), Math.floor(at) + 1];
          drag.current = null;
          setRange(null);
          choose({ from: edge(a), until: edge(b), item: null });
        }} onPointerLeave={hideTip}>
        {strip.bins.map((counts, place) => {
          const size = counts.reduce((sum, number) => sum + number, 0) || 1;
          const full = counts.reduce((sum, number, state) => sum + (over[state] ? number : 0), 0) / size;
          const worst = WORST.find((state) => (counts[strip.states.indexOf(state)] ?? 0) > 0) ?? "waiting";
          const active = (counts[strip.states.indexOf("running")] ?? 0) / size;
          const height = Math.max((full + active) * STRIP_HEIGHT, 3);
          return <rect key={place} class={`bin ${worst === "waiting" ? "bin-waiting" : `tone-${toneOf(worst)}`}`} x={place + (bins > 200 ? 0 : 0.08)} width={bins > 200 ? 1 : 0.84} y={STRIP_HEIGHT - height} height={height} />;
        })}
        {chosen ? <rect class="range" x={chosen[0]} width={Math.max(chosen[1] - chosen[0], 0.5)} y={0} height={STRIP_HEIGHT} /> : null}
      </svg>
      <figcaption class="row muted"><span>{count(strip.from)}</span><span class="grow" />{strip.bins.length && strip.count > strip.bins.length ? <span>each bar is {count(Math.ceil(strip.count / strip.bins.length))} items, coloured by the worst of them; drag to choose a range</span> : null}<span class="grow" /><span>{count(Math.max(strip.until - 1, 0))}</span></figcaption>
    </figure>
  );
}

function GroupList({ groups, q }: { groups: Groups; q: string }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? groups.items : groups.items.slice(0, 3);
  return (
    <div class="groups" role="group" aria-label="Failures by reason">
      {shown.map((each) => (
        <button key={each.fingerprint} type="button" class="group-row" title={each.message} aria-pressed={q !== "" && (each.message ?? "").includes(q)} onClick={() => choose({ state: "failed", q: searchable(each.message ?? each.kind), item: null })}>
          <span class="num tone-failed said">{count(each.count)}</span><span class="cut">{each.kind === "error" ? null : <b>{each.kind} </b>}<span class="soft">{each.message ?? each.kind}</span></span><span class="muted">items {each.items.join(", ")}{each.count > each.items.length ? " …" : ""}</span>
        </button>
      ))}
      {groups.items.length > shown.length ? <button type="button" class="mini" onClick={() => setWhole(true)}>{count(groups.items.length - shown.length)} more reasons</button> : null}
      {groups.failed > groups.looked_at ? <p class="muted">The first {count(groups.looked_at)} of {count(groups.failed)} failures are grouped.</p> : null}
    </div>
  );
}

/** The longest part of a message without numbers, which all messages of a group have. */
function searchable(message: string): string {
  return (message.split("\n")[0] ?? "").split(/[\d"\\]+|0x[0-9a-f]+/).map((each) => each.trim()).sort((a, b) => b.length - a.length)[0] ?? "";
}

function Items({ run, step, version, strip, selected, onSelect }: { run: string; step: string; version: number; strip: Strip | null; selected: ReadonlySet<number>; onSelect: (next: ReadonlySet<number>) => void }) {
  const { state = "", q = "", from = "", until = "", item = "" } = place.value.query;
  const [typed, setTyped] = useState(q);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [error, setError] = useState<Error | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const filter = `${state}|${q}|${from}|${until}`;
  const store = useMemo(() => ({ windows: new Map<number, Item[]>(), fetching: new Set<number>(), count: null as number | null, found: [] as Item[], cursor: "" as string | null, isFetching: false, range: [0, 0] as [number, number] }), [filter, run, step]);
  const query = { state, q, from, until };
  const fetchWindow = async (index: number) => {
    if (store.fetching.has(index)) return;
    store.fetching.add(index);
    try {
      const page = await get<Page<Item> & { count: number | null }>(runPath(run, "loops", step, "items"), { ...query, skip: index * WINDOW, limit: WINDOW });
      store.windows.set(index, page.items);
      store.count = page.count;
      setError(null);
    } catch (problem) {
      setError(problem as Error);
    }
    store.fetching.delete(index);
    redraw(null);
  };
  const fetchFound = async () => {
    if (store.isFetching || store.cursor === null) return;
    store.isFetching = true;
    try {
      const page = await get<Page<Item>>(runPath(run, "loops", step, "items"), { ...query, limit: WINDOW, cursor: store.cursor });
      store.found.push(...page.items);
      store.cursor = page.next_cursor;
      setError(null);
    } catch (problem) {
      store.cursor = null;
      setError(problem as Error);
    }
    store.isFetching = false;
    redraw(null);
    if (store.cursor && store.found.length < 30) void fetchFound();
  };
  useEffect(() => { if (q) void fetchFound(); else void fetchWindow(0); }, [store]);
  // While the loop runs, the window that is seen is fetched again when something has changed, twice a second at most.
  const timer = useRef(0);
  useEffect(() => {
    if (!version || q || timer.current) return;
    timer.current = setTimeout(() => {
      timer.current = 0;
      const [first, last] = store.range;
      for (const index of store.windows.keys()) if (index < Math.floor(first / WINDOW) || index > Math.floor(last / WINDOW)) store.windows.delete(index);
      for (let index = Math.floor(first / WINDOW); index <= Math.floor(last / WINDOW); index++) void fetchWindow(index);
    }, 500) as unknown as number;
  }, [version]);
  const number = q ? store.found.length : (store.count ?? 0);
  const itemAt = (index: number): Item | null => q ? (store.found[index] ?? null) : (store.windows.get(Math.floor(index / WINDOW))?.[index % WINDOW] ?? null);
  const ranged = (first: number, last: number) => {
    store.range = [first, last];
    if (q) {
      if (last > store.found.length - 20) void fetchFound();
      return;
    }
    for (let index = Math.floor(first / WINDOW); index <= Math.floor(last / WINDOW); index++) if (!store.windows.has(index)) void fetchWindow(index);
  };
  const chosen = item === "" ? -1 : Number(item);
  const toggle = (which: number) => {
    const next = new Set(selected);
    if (!next.delete(which)) next.add(which);
    onSelect(next);
  };
  const move = (by: number) => {
    for (let index = 0; index < number; index++) if (itemAt(index)?.item === chosen) {
      const next = itemAt(index + by);
      if (next) choose({ item: next.item }, true);
      return;
    }
    const first = itemAt(0);
    if (first) choose({ item: first.item }, true);
  };
  useKeys([
    { keys: "j", about: "next row", do: () => move(1) },
    { keys: "k", about: "previous row", do: () => move(-1) },
    { keys: "x", about: "select the row", do: () => { if (chosen >= 0) toggle(chosen); } },
    { keys: "/", about: "filter", do: () => field.current?.focus() },
  ]);
  const isFiltered = Boolean(state || q || from);
  const reveal = useMemo(() => (!isFiltered && chosen >= 0 ? { index: chosen } : null), [isFiltered, chosen, number === 0]);
  return (
    <div class="col split-main" onKeyDown={(event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== field.current) {
        event.preventDefault();
        field.current?.focus();
      }
    }}>
      <div class="row toolbar">
        <form onSubmit={(event) => { event.preventDefault(); choose({ q: typed, item: null }); }}><input ref={field} class="field" type="search" placeholder="Search keys, values, errors" aria-label="Search the items" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></form>
        {state ? <Chip name="state" value={state} onRemove={() => choose({ state: null })} /> : null}
        {q ? <Chip name="text" value={q} onRemove={() => { setTyped(""); choose({ q: null }); }} /> : null}
        {from ? <Chip name="items" value={`${count(Number(from))} to ${count(Number(until) - 1)}`} onRemove={() => choose({ from: null, until: null })} /> : null}
        <span class="grow" />
        {selected.size ? <button type="button" class="mini" onClick={() => onSelect(new Set())}>{count(selected.size)} selected ×</button> : null}
        <span class="muted">{q ? `${count(store.found.length)}${store.cursor === null ? "" : "+"}` : count(number)} {isFiltered && strip ? `of ${count(strip.count)}` : "items"}</span>
      </div>
      {error ? <Trouble error={error} /> : null}
      {number ? (
        <>
          <div class="head-gutter"><div class="item-row head" aria-hidden="true"><span /><span class="num">number</span><span>status</span><span>key</span><span class="num">tries</span><span>value</span><span>result or error</span></div></div>
          <VirtualList className="items-list" label="Items" count={number} rowHeight={28} reveal={reveal} onRange={ranged} row={(index) => {
            const each = itemAt(index);
            if (!each) return <div class="item-row muted"><span /><span class="num">…</span></div>;
            return (
              <div class={`item-row ${each.item === chosen ? "chosen" : ""}`} onClick={() => choose({ item: each.item === chosen ? null : each.item }, true)}>
                <input type="checkbox" aria-label={`Select item ${each.item}`} checked={selected.has(each.item)} onClick={(event) => event.stopPropagation()} onChange={() => toggle(each.item)} />
                <button type="button" class="plain-button num" aria-label={`Item ${each.item}`} aria-pressed={each.item === chosen}>{count(each.item)}</button><Status status={each.status} /><span class="cut">{each.key}</span><span class="num">{each.tries > 1 ? each.tries : ""}</span>
                <span class="cut mono soft">{short(each.value)}</span>
                <span class="cut mono">{each.error ? <span class="tone-failed said">{q ? <Marked text={faultText(each.error)} mark={q} /> : faultText(each.error)}</span> : each.run ? <a class="link" href={runHref(each.run)} onClick={(event) => event.stopPropagation()}>its run</a> : short(each.result)}</span>
              </div>
            );
          }} />
        </>
      ) : store.isFetching || store.fetching.size || (q && store.cursor !== null) ? <Loading /> : error ? null : <Empty title={isFiltered ? "No item fits." : "The loop has no items."}>{isFiltered ? <button type="button" class="btn small" onClick={() => { setTyped(""); choose({ state: null, q: null, from: null, until: null }); }}>Lift the filters</button> : null}</Empty>}
    </div>
  );
}

function short(value: unknown): string {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

function ItemDetail({ run, step, item }: { run: string; step: string; item: number }) {
  const found = useResource(`${run}/${step}/${item}`, (abort) => ask<Item>(runPath(run, "loops", step, "items", item), { signal: abort }).then((answer) => ({ item: answer.data, parts: new Map(childrenOf(nodeOf(answer.text)).map((each) => [each.key, each.node.text])) })), true);
  return (
    <aside class="detail" aria-label={`Item ${item}`}>
      <header class="row"><h2 class="grow cut">Item {count(item)}</h2><button type="button" class="btn quiet small icon" aria-label="Close the item" onClick={() => choose({ item: null }, true)}><Icon name="close" /></button></header>
      <Part of={found.state.value}>{({ item: each, parts }) => (
        <div class="detail-body">
          <div class="row wrap-row"><span class={`badge tone-${toneOf(each.status)}`}>{each.status}</span>{each.key ? <span class="chip">{each.key}</span> : null}{each.tries > 1 ? <span class="muted">{each.tries} tries</span> : null}{each.run ? <a class="link" href={runHref(each.run)}>its run</a> : null}</div>
          {each.error ? <section><h3>Error</h3><FaultShown fault={each.error} /></section> : null}
          {parts.has("value") ? <section><h3>Value</h3><Json text={parts.get("value") ?? "null"} root="item" /></section> : null}
          {each.result !== undefined && each.result !== null ? <section><h3>Result</h3><Json text={parts.get("result") ?? "null"} root={`${step}.results[${item}]`} /></section> : null}
          <section><h3>Log</h3><LogTail run={run} step={step} item={item} /></section>
        </div>
      )}</Part>
    </aside>
  );
}
