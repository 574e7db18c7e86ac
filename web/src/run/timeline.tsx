// The visits of a run on an axis of time: what each waited for and when it worked. Idle spans fold to a mark.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { choose, href, place } from "../app/router";
import { count, Empty, Part } from "../ui/parts";
import { momentText, ms, span, zoneName } from "../ui/time";
import { hideTip, showTip } from "../ui/tip";
import { VirtualList } from "../ui/virtual";
import type { RunModel } from "./model";

export interface Segment {
  kind: string;
  from: string;
  until: string;
  attempt?: number;
  open: boolean;
}

interface Visit {
  step: string;
  visit: number;
  from: string;
  until: string | null;
  failed: boolean;
  segments: Segment[];
}

interface TimelineShown {
  from: string;
  until: string;
  over: boolean;
  paused: Segment[];
  visits: Visit[];
  more: boolean;
}

interface Spent {
  seconds: number;
  by_kind: Record<string, number>;
  by_step: Record<string, number> | Record<string, Record<string, number>>;
  critical_path: { step: string; visit: number }[];
  critical: Record<string, number>;
  slots_would_save: number;
}

export const KINDS: Record<string, { label: string; tone: string }> = {
  working: { label: "working", tone: "work" },
  loop: { label: "items at work", tone: "work" },
  slot: { label: "waiting for a slot", tone: "slot" },
  backoff: { label: "between two tries", tone: "backoff" },
  person: { label: "waiting for a person", tone: "person" },
  signal: { label: "waiting for a signal", tone: "signal" },
  timer: { label: "waiting for a time", tone: "timer" },
  child: { label: "waiting for a child run", tone: "child" },
  paused: { label: "paused", tone: "paused" },
};

const BUSY = new Set(["working", "loop", "slot", "backoff"]);
const FOLD_ABOVE = 0.1; // part of the width above which an idle span folds
const FOLD_TO = 0.03; // part of the width that a folded span has
const ROW = 28;

interface Axis {
  /** From a moment to a part of the width, 0 to 1. */
  place: (at: number) => number;
  time: (part: number) => number;
  folds: { from: number; until: number }[];
}

/** Idle spans above a tenth of the width become a mark; the rest of the axis stretches. */
export function axisOf(from: number, until: number, busy: [number, number][], pace = FOLD_ABOVE): Axis {
  const whole = Math.max(until - from, 1);
  const gaps: { from: number; until: number }[] = [];
  let reached = from;
  for (const [start, end] of [...busy].sort((a, b) => a[0] - b[0])) {
    if (start > reached) gaps.push({ from: reached, until: start });
    reached = Math.max(reached, end);
  }
  if (until > reached) gaps.push({ from: reached, until });
  const folds = gaps.filter((each) => each.until - each.from > whole * pace && gaps.length < 2000);
  const folded = folds.reduce((sum, each) => sum + each.until - each.from, 0);
  const busyTime = Math.max(whole - folded, 1);
  const forFolds = Math.min(folds.length * FOLD_TO, 0.6);
  const scale = (1 - forFolds) / busyTime;
  const each = folds.length ? forFolds / folds.length : 0;
  const cuts: [number, number][] = [[from, 0]];
  let at = 0;
  let time = from;
  for (const fold of folds) {
    at += (fold.from - time) * scale;
    cuts.push([fold.from, at]);
    at += each;
    cuts.push([fold.until, at]);
    time = fold.until;
  }
  cuts.push([until, 1]);
  const between = (value: number, a: 0 | 1, b: 0 | 1) => {
    for (let index = 1; index < cuts.length; index++) {
      const [left, right] = [cuts[index - 1] as [number, number], cuts[index] as [number, number]];
      if (value <= right[a] || index === cuts.length - 1) {
        const size = right[a] - left[a];
        return left[b] + (size > 0 ? Math.min(Math.max((value - left[a]) / size, 0), 1) : 0) * (right[b] - left[b]);
      }
    }
    return 0;
  };
  return { place: (value) => between(value, 0, 1), time: (part) => between(part, 1, 0), folds };
}

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];

export function Timeline({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const chosen = place.value.query["step"] ?? "";
  const { from = "", until = "" } = place.value.query;
  const width = useRef<HTMLDivElement>(null);
  const [pixels, setPixels] = useState(900);
  useLayoutEffect(() => {
    const element = width.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setPixels(Math.max(element.clientWidth - labelWidth(element.clientWidth) - 24, 120)));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const found = useResource(`${model.id}|${head}|${from}|${until}`, (abort) => get<TimelineShown>(runPath(model.id, "timeline"), { from, until, width: 1500 }, abort), true);
  const at = model.shown.value?.moment ? ms(model.shown.value.moment.at) : null;
  return (
    <div class="col grow fill-col" ref={width}>
      <div class="row toolbar legend">
        {["working", "slot", "backoff", "person", "signal", "timer", "child", "paused"].map((kind) => <span key={kind} class="key"><i class={`seg-${KINDS[kind]?.tone}`} />{KINDS[kind]?.label}</span>)}
        <span class="grow" />
        {from ? <button type="button" class="chip on" onClick={() => choose({ from: null, until: null })}>the whole run</button> : null}
      </div>
      <Part of={found.state.value}>{(data) => data.visits.length ? <Chart data={data} pixels={pixels} chosen={chosen} at={at} run={model.id} /> : <Empty title="Nothing has begun yet." />}</Part>
    </div>
  );
}

function labelWidth(pixels: number): number {
  return pixels < 560 ? 110 : 220;
}

function Chart({ data, pixels, chosen, at, run }: { data: TimelineShown; pixels: number; chosen: string; at: number | null; run: string }) {
  const { from = "", until = "" } = place.value.query;
  const axis = useMemo(() => {
    const busy = data.visits.flatMap((visit) => visit.segments.filter((each) => BUSY.has(each.kind)).map((each): [number, number] => [ms(each.from), ms(each.until)]));
    return axisOf(from ? ms(from) : ms(data.from), until ? ms(until) : ms(data.until), busy);
  }, [data, from, until]);
  const begin = from ? ms(from) : ms(data.from);
  const end = until ? ms(until) : ms(data.until);
  const x = (value: number) => axis.place(Math.min(Math.max(value, begin), end)) * pixels;
  const ticks = useMemo(() => ticksOf(axis, begin, end, pixels), [axis, pixels]);
  const drag = useRef<{ from: number; element: HTMLElement } | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const index = data.visits.findIndex((each) => each.step === chosen);
  const reveal = useMemo(() => (index >= 0 ? { index } : null), [index]);
  const partOf = (event: PointerEvent, element: HTMLElement) => Math.min(Math.max((event.clientX - element.getBoundingClientRect().left) / pixels, 0), 1);
  return (
    <div class="timeline grow" style={{ "--plot": `${pixels}px` }}>
      <div class="time-axis">
        <span class="muted">{momentText(begin).slice(0, 10)} {zoneName.value}</span>
        <div class="plot" onPointerDown={(event) => { drag.current = { from: partOf(event, event.currentTarget), element: event.currentTarget }; event.currentTarget.setPointerCapture(event.pointerId); }}
          onPointerMove={(event) => { if (drag.current) setRange([drag.current.from, partOf(event, event.currentTarget)]); }}
          onPointerUp={() => {
            if (range && Math.abs(range[0] - range[1]) > 0.01) {
              const [a, b] = [...range].sort((left, right) => left - right) as [number, number];
              choose({ from: new Date(axis.time(a)).toISOString(), until: new Date(axis.time(b) + 1).toISOString() });
            }
            drag.current = null;
            setRange(null);
          }}>
          {ticks.map((each) => <span key={each.x} class="tick" style={{ left: `${each.x}px` }}>{each.text}</span>)}
          {axis.folds.map((each) => <span key={each.from} class="fold-mark" style={{ left: `${x(each.from)}px`, width: `${x(each.until) - x(each.from)}px` }} title={`nothing worked for ${span((each.until - each.from) / 1000)}`}>⋯</span>)}
          {range ? <span class="range" style={{ left: `${Math.min(...range) * pixels}px`, width: `${Math.abs(range[0] - range[1]) * pixels}px` }} /> : null}
        </div>
      </div>
      <VirtualList label="Visits" count={data.visits.length} rowHeight={ROW} reveal={reveal} row={(place) => {
        const visit = data.visits[place];
        if (!visit) return null;
        const isLoop = visit.segments.some((each) => each.kind === "loop");
        const last = visit.segments.at(-1);
        const seconds = (ms(visit.until ?? data.until) - ms(visit.from)) / 1000;
        return (
          <div class={`lane ${visit.step === chosen ? "chosen" : ""}`} onClick={() => choose({ step: visit.step === chosen ? null : visit.step })}>
            <span class="lane-name row"><button type="button" class={`plain-button cut ${visit.failed ? "tone-failed said" : ""}`} title={visit.step} aria-pressed={visit.step === chosen}>{visit.step}</button>{visit.visit > 1 ? <span class="muted small">{visit.visit}</span> : null}{isLoop ? <a class="link small" href={href(["runs", run, "loops", visit.step])} onClick={(event) => event.stopPropagation()}>items</a> : null}</span>
            <svg class="plot" width={pixels} height={ROW} aria-label={`${visit.step}: ${span(seconds)}`} role="img">
              {axis.folds.map((each) => <rect key={each.from} class="fold-band" x={x(each.from)} y={0} width={Math.max(x(each.until) - x(each.from), 0)} height={ROW} />)}
              {visit.segments.map((each, number) => {
                const left = x(ms(each.from));
                const right = x(ms(each.until));
                const isWork = each.kind === "working" || each.kind === "loop";
                return <rect key={number} class={`seg seg-${KINDS[each.kind]?.tone ?? "slot"} ${visit.failed && isWork && each === last ? "bad" : ""} ${each.open ? "open" : ""}`} x={left} y={isWork ? 8 : 11} width={Math.max(right - left, 1.5)} height={isWork ? 12 : 6} rx={Math.min(2.5, Math.max(right - left, 1.5) / 2)}
                  onMouseMove={(event) => showTip(`${KINDS[each.kind]?.label ?? each.kind}${each.attempt ? `, try ${each.attempt}` : ""}: ${span((ms(each.until) - ms(each.from)) / 1000)}\n${momentText(ms(each.from)).slice(11)} to ${each.open ? "now" : momentText(ms(each.until)).slice(11)} ${zoneName.value}`, event.clientX + 8, event.clientY + 14)} onMouseLeave={hideTip} />;
              })}
              {last && pixels > 300 ? (() => {
                const end = x(ms(visit.until ?? data.until));
                const isRight = end < pixels - 70;
                return <text class="seg-text" x={isRight ? end + 6 : x(ms(visit.from)) - 6} y={18} text-anchor={isRight ? "start" : "end"}>{span(seconds)}</text>;
              })() : null}
              {at !== null ? <line class="now-line" x1={x(at)} x2={x(at)} y1={0} y2={ROW} /> : null}
            </svg>
          </div>
        );
      }} />
      {data.more ? <p class="muted pad">The first {count(data.visits.length)} visits of this span; choose a shorter one on the axis to see others.</p> : null}
    </div>
  );
}

function ticksOf(axis: Axis, begin: number, end: number, pixels: number): { x: number; text: string }[] {
  const most = Math.max(Math.floor(pixels / 90), 1);
  const visible = (end - begin) / 1000;
  const step = STEPS.find((each) => visible / each <= most * (axis.folds.length ? 30 : 1)) ?? visible;
  const found: { x: number; text: string }[] = [];
  let last = -100;
  for (let at = Math.ceil(begin / 1000 / step) * step * 1000; at <= end && found.length < 200; at += step * 1000) {
    const x = axis.place(at) * pixels;
    if (x - last < 74 || x > pixels - 30 || axis.folds.some((each) => at > each.from && at < each.until)) continue;
    const text = momentText(at);
    found.push({ x, text: step < 1 ? `${text.slice(14)}.${String(Math.round(at % 1000)).padStart(3, "0")}` : step < 60 ? text.slice(11) : step < 86400 ? text.slice(11, 16) : text.slice(5, 10) });
    last = x;
  }
  return found;
}

/** Where the time went, over all visits and along the critical path. */
export function TimeSpent({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const found = useResource(`${model.id}|${head}`, (abort) => get<Spent>(runPath(model.id, "time"), {}, abort), true);
  return (
    <Part of={found.state.value} lines={2}>{(spent) => {
      const kinds = Object.entries(spent.critical).filter(([, seconds]) => seconds > 0.0005).sort((a, b) => b[1] - a[1]);
      const total = kinds.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
      return (
        <section class="spent">
          <h3 class="section">Where the time went <span class="muted">{span(spent.seconds)} from beginning to end</span></h3>
          <div class="spent-bar" role="img" aria-label={kinds.map(([kind, seconds]) => `${KINDS[kind]?.label ?? kind} ${span(seconds)}`).join(", ")}>
            {kinds.map(([kind, seconds]) => <i key={kind} class={`seg-${KINDS[kind]?.tone ?? "slot"}`} style={{ flexGrow: String(seconds / total) }} />)}
          </div>
          <ul class="spent-list">
            {kinds.map(([kind, seconds]) => <li key={kind}><i class={`seg-${KINDS[kind]?.tone ?? "slot"}`} /><b>{span(seconds)}</b> {KINDS[kind]?.label ?? kind} <span class="muted">{seconds / total < 0.005 ? "<1" : Math.round((seconds / total) * 100)} %</span></li>)}
          </ul>
          {spent.slots_would_save > 0.05 ? <p class="soft">More slots would have saved {span(spent.slots_would_save)}.</p> : null}
          {spent.critical_path.length > 1 ? <p class="path"><span class="muted">critical path </span>{spent.critical_path.slice(-40).map((each, index) => <span key={index}>{index ? <span class="muted"> → </span> : null}<button type="button" class="mini" onClick={() => choose({ tab: "steps", step: each.step })}>{each.step}{each.visit > 1 ? <span class="muted"> {each.visit}</span> : null}</button></span>)}</p> : null}
        </section>
      );
    }}</Part>
  );
}
