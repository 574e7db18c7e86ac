// What the steps of a run printed: live, windowed, searched by the server.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, link, may, runPath } from "../api/client";
import { subscribe } from "../api/stream";
import { choose, place } from "../app/router";
import { Ansi } from "../ui/ansi";
import { Button, Chip, copy, count, Empty, Loading, Trouble } from "../ui/parts";
import { Moment } from "../ui/time";
import { VirtualList } from "../ui/virtual";
import type { RunModel } from "./model";

export interface LineData {
  at?: string;
  step?: string;
  item?: number;
  visit?: number;
  attempt?: number;
  stream?: string;
  text?: string;
  [name: string]: unknown;
}

export interface Line {
  number: number;
  line: LineData | string;
}

interface LinePage {
  items: Line[];
  next: number | null;
  more: boolean;
}

const LONG = 4000; // characters of a line that are shown
const STEP = 500; // lines of one request
const LAST = 2 ** 40;

export function textOf(line: LineData | string): string {
  if (typeof line === "string") return line;
  if (typeof line.text === "string") return line.text;
  const { at: _at, step: _step, item: _item, visit: _visit, attempt: _attempt, stream: _stream, ...rest } = line;
  return JSON.stringify(rest);
}

function LineText({ line, mark }: { line: LineData | string; mark?: string }) {
  const text = textOf(line);
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > LONG && !isWhole;
  return <>
    <Ansi text={isCut ? text.slice(0, LONG) : text} {...(mark ? { mark } : {})} />
    {isCut ? <button type="button" class="btn small quiet" onClick={() => setWhole(true)}>… {count(text.length - LONG)} more characters</button> : null}
  </>;
}

/** The last lines of a step or an item, in its details. */
export function LogTail({ run, step, item, limit = 30 }: { run: string; step: string; item?: number; limit?: number }) {
  const state = useMemo(() => signal<{ lines: Line[]; error: Error | null; isLoading: boolean }>({ lines: [], error: null, isLoading: true }), []);
  const load = () => {
    if (!may("values")) {
      state.value = { lines: [], error: new Error('needs the permission "values"'), isLoading: false };
      return;
    }
    get<LinePage>(runPath(run, "lines"), { step, item, before: LAST, limit }).then(
      (page) => { state.value = { lines: page.items, error: null, isLoading: false }; },
      (error: Error) => { state.value = { ...state.value, error, isLoading: false }; });
  };
  useEffect(load, [run, step, item]);
  const { lines, error, isLoading } = state.value;
  if (error) return <p class="muted">{error.message}</p>;
  if (isLoading) return <Loading lines={2} />;
  if (!lines.length) return <p class="muted">It has printed nothing.</p>;
  return <div class="log tail" tabIndex={0} role="group" aria-label="The last lines">{lines.map((each) => <div key={each.number} class={lineClass(each.line)}><LineText line={each.line} /></div>)}</div>;
}

function lineClass(line: LineData | string): string {
  return typeof line !== "string" && line.stream === "stderr" ? "line err" : "line";
}

export function Logs({ model }: { model: RunModel }) {
  const { q = "", logstep = "", stream = "", line: linked = "" } = place.value.query;
  const [lines, setLines] = useState<Line[]>([]);
  const [state, setState] = useState<{ isLoading: boolean; error: Error | null; before: number | null }>({ isLoading: true, error: null, before: null });
  const [follows, setFollows] = useState(!linked);
  const [unseen, setUnseen] = useState(0);
  const [typed, setTyped] = useState(q);
  const field = useRef<HTMLInputElement>(null);
  const query = { q, step: logstep, stream };
  const key = JSON.stringify([q, logstep, stream]);
  const isAllowed = may("values");
  const last = useRef(0);

  useEffect(() => {
    if (!isAllowed) return;
    let isOver = false;
    setLines([]);
    setState({ isLoading: true, error: null, before: null });
    const begin = linked ? Number(linked) + STEP / 2 : LAST;
    get<LinePage>(runPath(model.id, "lines"), { ...query, before: begin, limit: STEP }).then((page) => {
      if (isOver) return;
      last.current = page.items.at(-1)?.number ?? 0;
      setLines(page.items);
      setState({ isLoading: false, error: null, before: page.more ? page.next : null });
    }, (error: Error) => { if (!isOver) setState({ isLoading: false, error, before: null }); });
    return () => { isOver = true; };
  }, [key, model.id]);

  // The stream says that there are new lines; they are fetched with the filter.
  useEffect(() => {
    if (!isAllowed || state.isLoading) return;
    let isOver = false;
    let isFetching = false;
    const more = async () => {
      if (isFetching) return;
      isFetching = true;
      const page = await get<LinePage>(runPath(model.id, "lines"), { ...query, after: last.current, limit: STEP }).catch(() => null);
      isFetching = false;
      if (isOver || !page?.items.length) return;
      last.current = page.items.at(-1)?.number ?? last.current;
      setLines((before) => [...before, ...page.items].slice(-20_000));
      setUnseen((before) => before + page.items.length);
    };
    const end = subscribe(`lines:${model.id}@${last.current}`, (event) => { if (event.name === "lines") void more(); });
    return () => { isOver = true; end(); };
  }, [key, model.id, state.isLoading]);

  const earlier = () => {
    if (state.before === null) return;
    get<LinePage>(runPath(model.id, "lines"), { ...query, before: state.before, limit: STEP }).then((page) => {
      setLines((after) => [...page.items, ...after]);
      setState({ isLoading: false, error: null, before: page.more ? page.next : null });
    }, (error: Error) => setState({ ...state, error }));
  };
  const reveal = useMemo(() => (linked ? { index: lines.findIndex((each) => each.number === Number(linked)), align: "center" as const } : null), [linked, lines.length === 0]);
  if (!isAllowed) return <Empty title="Log lines are values."><p>You need the permission "values" to read them.</p></Empty>;
  const search = (event: Event) => {
    event.preventDefault();
    choose({ q: typed, line: null });
  };
  return (
    <div class="col grow fill-col" onKeyDown={(event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== field.current) {
        event.preventDefault();
        field.current?.focus();
      }
    }}>
      <div class="row toolbar">
        <form onSubmit={search}><input ref={field} class="field" type="search" placeholder="Search the log" aria-label="Search the log" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></form>
        {q ? <Chip name="text" value={q} onRemove={() => { setTyped(""); choose({ q: null }); }} /> : null}
        {logstep ? <Chip name="step" value={logstep} onRemove={() => choose({ logstep: null })} /> : null}
        <button type="button" class="chip" aria-pressed={stream === "stderr"} onClick={() => choose({ stream: stream ? null : "stderr" })}>errors only</button>
        <span class="grow" />
        {!follows && unseen ? <Button isSmall onClick={() => { setFollows(true); setUnseen(0); }}>{count(unseen)} new</Button> : null}
        <button type="button" class="chip" aria-pressed={follows} onClick={() => { setFollows(!follows); setUnseen(0); }}>follow</button>
        <a class="btn small quiet" href={link(runPath(model.id, "export"))} download>Download all</a>
      </div>
      {state.error ? <Trouble error={state.error} /> : null}
      {state.isLoading ? <Loading /> : lines.length ? (
        <>
          {state.before !== null ? <button type="button" class="mini earlier" onClick={earlier}>earlier lines</button> : null}
          <VirtualList className="grow log" label="Log" count={lines.length} rowHeight={20} isVariable reveal={reveal} follows={follows}
            onFollow={(isAtEnd) => { if (!isAtEnd && follows) setFollows(false); if (isAtEnd) setUnseen(0); }}
            row={(index) => {
              const each = lines[index];
              if (!each) return null;
              const data = typeof each.line === "string" ? {} : each.line;
              return (
                <div class={`${lineClass(each.line)} full ${String(each.number) === linked ? "linked" : ""}`}>
                  <button type="button" class="nr" aria-label={`Link to line ${each.number}`} onClick={() => { choose({ line: each.number }, true); void copy(location.href, "link copied"); }}>{each.number}</button>
                  <span class="when">{data.at ? <Moment at={data.at} /> : null}</span>
                  <button type="button" class="from cut" title={`only ${data.step ?? ""}`} onClick={() => choose({ logstep: data.step ?? null })}>{data.step}{data.item !== undefined ? `[${data.item}]` : ""}</button>
                  <span class="text"><LineText line={each.line} mark={q} /></span>
                </div>
              );
            }} />
        </>
      ) : <Empty title={q || logstep || stream ? "No line fits." : "Nothing has been printed."}>{q || logstep || stream ? <button type="button" class="btn small" onClick={() => { setTyped(""); choose({ q: null, logstep: null, stream: null }); }}>Lift the filters</button> : null}</Empty>}
    </div>
  );
}
