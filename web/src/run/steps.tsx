// The steps of a run, as the terminal shows them, and the details of the one that is chosen.
import { useMemo, useState } from "preact/hooks";
import { ask, runPath, get } from "../api/client";
import { useResource } from "../api/resource";
import type { Fault, Page, Reason, RunRow, StepRow } from "../api/types";
import { useKeys } from "../app/keys";
import { prefer, preferences } from "../app/preferences";
import { choose, href, place, runHref } from "../app/router";
import { Icon } from "../ui/icons";
import { Json } from "../ui/json";
import { childrenOf, nodeOf } from "../ui/json-text";
import { bytes, CommandLine, copy, count, Empty, Part, quoted } from "../ui/parts";
import { Glyph, Status, toneOf } from "../ui/status";
import { Moment, span } from "../ui/time";
import { VirtualList } from "../ui/virtual";
import { LogTail } from "./logs";
import type { RunModel } from "./model";
import { jumpTo } from "./slider";
import { Why } from "./why";

/** The status of a step as people read it: `issued` is running while a worker has it, else waiting. */
export function shownStatus(row: StepRow): string {
  if (row.status === "issued" || row.status === "entered") return row.reason && row.reason.kind !== "running" ? "waiting" : "running";
  return row.status;
}

const DONE = new Set(["completed", "skipped", "bypassed"]);

type Line = { kind: "step"; row: StepRow } | { kind: "child"; step: string; run: RunRow } | { kind: "note"; step: string; text: string };

export function Steps({ model }: { model: RunModel }) {
  const shown = model.shown.value;
  const chosen = place.value.query["step"] ?? "";
  const [open, setOpen] = useState<ReadonlyMap<string, RunRow[] | null>>(new Map());
  const hidesDone = preferences.value.hidesDone;
  const rows = shown?.rows ?? [];
  const lines = useMemo<Line[]>(() => rows.filter((row) => !(hidesDone && DONE.has(row.status))).flatMap((row): Line[] => {
    const runs = open.get(row.step);
    if (runs === undefined) return [{ kind: "step", row }];
    const below: Line[] = runs === null ? [{ kind: "note", step: row.step, text: "loading" }] : runs.map((run) => ({ kind: "child", step: row.step, run }));
    return [{ kind: "step", row }, ...(runs?.length === 0 ? [{ kind: "note", step: row.step, text: "no child run" } as Line] : below)];
  }), [rows, open, hidesDone]);
  const index = lines.findIndex((each) => each.kind === "step" && each.row.step === chosen);
  const reveal = useMemo(() => (index >= 0 ? { index } : null), [index]);
  const move = (by: number) => {
    const steps = lines.filter((each): each is Extract<Line, { kind: "step" }> => each.kind === "step");
    const now = steps.findIndex((each) => each.row.step === chosen);
    const next = steps[Math.max(0, Math.min(steps.length - 1, now + by))];
    if (next) choose({ step: next.row.step }, true);
  };
  useKeys([
    { keys: "j", about: "next row", do: () => move(1) },
    { keys: "k", about: "previous row", do: () => move(-1) },
  ]);
  const toggle = async (step: string) => {
    const next = new Map(open);
    if (next.has(step)) {
      next.delete(step);
      setOpen(next);
      return;
    }
    next.set(step, null);
    setOpen(next);
    const children = await get<Page<RunRow>>(runPath(model.id, "children")).catch(() => ({ items: [] as RunRow[] }));
    const steps = childStep(children.items, step, model.head.value?.name ?? "");
    setOpen((now) => new Map(now).set(step, steps));
  };
  if (!shown) return null;
  return (
    <div class={`sides ${chosen ? "with-detail" : ""}`}>
      <div class="col split-main">
        <div class="row toolbar">
          <span class="muted">{count(rows.length)} {rows.length === 1 ? "step" : "steps"}</span>
          <button type="button" class="chip" aria-pressed={hidesDone} onClick={() => prefer({ hidesDone: !hidesDone })}>Hide what is done</button>
          {hidesDone && rows.length !== lines.length ? <span class="muted">{count(rows.filter((row) => DONE.has(row.status)).length)} hidden</span> : null}
        </div>
        {lines.length ? (
          <VirtualList className="grow step-list" label="Steps" count={lines.length} rowHeight={34} reveal={reveal} row={(at) => {
            const line = lines[at];
            if (!line) return null;
            if (line.kind === "note") return <div class="step-row below muted">{line.text}</div>;
            if (line.kind === "child") return (
              <a class="step-row below" href={runHref(line.run.id)}><Glyph status={line.run.status} /><span class="cut">{line.run.name || line.run.id}</span><span class="muted cut">{line.run.status}</span></a>
            );
            return <StepLine row={line.row} isChosen={line.row.step === chosen} isChanged={shown.changed.has(line.row.step)} isOpen={open.has(line.row.step)} onToggle={() => void toggle(line.row.step)} run={model.id} />;
          }} />
        ) : <Empty title={rows.length ? "Everything is done." : "This run has no steps yet."}>{rows.length ? <button type="button" class="btn small" onClick={() => prefer({ hidesDone: false })}>Show what is done</button> : null}</Empty>}
      </div>
      {chosen ? <StepDetail key={chosen} model={model} step={chosen} /> : null}
    </div>
  );
}

/** Children are named after their parent and the step that has started them. */
function childStep(runs: RunRow[], step: string, parent: string): RunRow[] {
  const beginnings = [`${parent}.${step}`];
  const mine = runs.filter((each) => beginnings.some((text) => each.name === text || each.name?.startsWith(`${text}[`) || each.name?.startsWith(`${text}#`) || each.name?.startsWith(`${text}.`)));
  return mine.length ? mine : runs.filter((each) => each.name === null);
}

function StepLine({ row, isChosen, isChanged, isOpen, onToggle, run }: { row: StepRow; isChosen: boolean; isChanged: boolean; isOpen: boolean; onToggle: () => void; run: string }) {
  const status = shownStatus(row);
  const isLoop = row.count > 0 || row.more;
  const hasChild = row.reason?.kind === "child" || isLoop;
  return (
    <div class={`step-row ${isChosen ? "chosen" : ""} ${isChanged ? "changed" : ""} is-${row.status}`} onClick={() => choose({ step: isChosen ? null : row.step })}>
      <Status status={status}>{row.status === "pending" && row.visits ? "again" : status}</Status>
      <span class="row name">
        <button type="button" class="plain-button cut" title={row.step} aria-pressed={isChosen}>{row.step}</button>
        {row.visits > 1 ? <span class="muted small">visit {row.visits}</span> : null}
        {row.attempts > 1 && !isLoop && row.attempts > row.visits ? <span class="muted small">{row.attempts} tries</span> : null}
        {hasChild ? <button type="button" class="mini" aria-expanded={isOpen} aria-label={`Child runs of ${row.step}`} onClick={(event) => { event.stopPropagation(); onToggle(); }}>{isOpen ? "▾" : "▸"}</button> : null}
      </span>
      {isLoop ? <LoopBar row={row} run={run} /> : <span />}
      <span class="cut soft">{row.error ? <span class="tone-failed said">{faultText(row.error)}</span> : <Why reason={row.reason} isShort />}</span>
    </div>
  );
}

/** A fault with its class, such as `KeyError: 'id'`, as the command line says it. */
export function faultText(fault: Fault): string {
  const name = faultName(fault);
  const text = fault.message || fault.kind;
  return name && !text.startsWith(name) ? (fault.message ? `${name}: ${fault.message}` : name) : text;
}

export function faultName(fault: Fault): string {
  return typeof fault["type"] === "string" ? (fault["type"].split(".").at(-1) ?? "") : "";
}

export function LoopBar({ row, run }: { row: StepRow; run: string }) {
  const total = Math.max(row.count, 1);
  const part = (number: number, tone: string) => number ? <i class={`tone-${tone}`} style={{ width: `${(number / total) * 100}%` }} /> : null;
  return (
    <a class="loop-bar" href={href(["runs", run, "loops", row.step])} onClick={(event) => event.stopPropagation()} title={`${row.done} completed, ${row.failed} failed, ${row.open} running of ${row.count}`}>
      <span class="bar">{part(row.done, "completed")}{part(row.failed, "failed")}{part(row.open, "running")}{part(row.skipped + row.cancelled, "quiet")}</span>
      <span class="small">{count(row.done + row.failed + row.skipped + row.cancelled)}/{count(row.count)}{row.more ? "+" : ""}</span>
      {row.failed ? <span class="small tone-failed said">{count(row.failed)} failed</span> : null}
      {row.left !== null && row.left > 0 ? <span class="small soft">{span(row.left)} left</span> : row.rate >= 1 && row.open ? <span class="small muted">{row.rate.toFixed(row.rate < 10 ? 1 : 0)}/s</span> : null}
    </a>
  );
}

interface Try {
  number: number;
  at: string;
  visit?: number;
  attempt?: number;
  outcome?: string;
  worker?: string | null;
  seconds?: number;
  error?: Fault;
  option?: string;
  by?: string;
  run?: string;
  items?: number;
}

interface StepShown {
  row: StepRow;
  kind: string;
  reasons: Reason[];
  more_reasons: number;
  tries: Try[];
  input?: ValuePart | null;
  result?: ValuePart | null;
  first_failure?: string | null;
}

export interface ValuePart {
  text?: string;
  ref?: { size: number; hash: string; beginning: string };
}

export function StepDetail({ model, step }: { model: RunModel; step: string }) {
  const at = model.at.value;
  const head = model.head.value?.head ?? 0;
  const key = `${step}|${at ?? head}`;
  const found = useResource(key, (abort) => ask<StepShown>(runPath(model.id, "steps", step), { query: { at, values: "text" }, signal: abort }), true);
  const name = quoted(model.head.value?.name || model.id);
  return (
    <aside class="detail" aria-label={`Step ${step}`}>
      <header class="row">
        <h2 class="cut grow" title={step}>{step}</h2>
        <button type="button" class="btn small quiet" onClick={() => void jumpTo(model.id, { step }, `fact of ${step}`)}>its begin</button>
        <button type="button" class="btn quiet small icon" aria-label="Close the step" onClick={() => choose({ step: null })}><Icon name="close" /></button>
      </header>
      <Part of={found.state.value}>{(data) => (
        <div class="detail-body">
          <div class="row wrap-row">
            <span class={`badge tone-${toneOf(shownStatus(data.row))}`}>{shownStatus(data.row)}</span>
            <span class="chip">{data.kind}</span>
            {data.row.visits > 1 ? <span class="muted">visit {data.row.visits}</span> : null}
            {data.row.count ? <a class="link" href={href(["runs", model.id, "loops", step])}>{count(data.row.count)} items</a> : null}
          </div>
          {data.reasons.length ? <section><h3>Why it waits</h3>{data.reasons.slice(0, 12).map((each, place) => <p key={place}>{each.item !== null && each.item !== undefined ? <span class="muted">item {each.item}: </span> : null}<Why reason={each} /></p>)}{data.reasons.length > 12 || data.more_reasons ? <p class="muted">and {count(data.reasons.length - 12 + data.more_reasons)} more</p> : null}</section>
            : data.row.reason ? <section><h3>{at === null ? "Why it waits" : "Why it waited then"}</h3><p><Why reason={data.row.reason} /></p></section> : null}
          {data.row.error ? <section><h3>Error</h3><FaultShown fault={data.row.error} />{data.first_failure ? <p class="soft wrap">{data.first_failure}</p> : null}</section> : null}
          {data.tries.length ? <section><h3>Tries</h3><Tries tries={data.tries} /></section> : null}
          <Value title="Input" value={inputOf(data.input)} root="input" />
          <Value title="Result" value={data.result} root={step} />
          <section><h3>Log</h3><LogTail run={model.id} step={step} /></section>
          <CommandLine text={`refold runs show ${name}`} />
        </div>
      )}</Part>
    </aside>
  );
}

/** The input of a command has the input of the step and the settings of its tool; only what is there is shown. */
function inputOf(value: ValuePart | null | undefined): ValuePart | null | undefined {
  if (!value?.text || value.text === "null") return null;
  const node = nodeOf(value.text);
  if (node.kind !== "object") return value;
  const filled = childrenOf(node).filter((each) => each.node.text !== "{}" && each.node.text !== "null");
  if (!filled.length) return null;
  return filled.length === 1 && filled[0] ? { text: filled[0].node.text } : value;
}

export function FaultShown({ fault }: { fault: Fault }) {
  const trace = typeof fault.traceback === "string" ? fault.traceback : "";
  const data = fault.data;
  return (
    <div class="fault">
      <b>{faultName(fault) || fault.kind}</b> <span class="wrap">{fault.message}</span>
      {trace ? <pre class="wrap">{trace}</pre> : null}
      {data !== undefined && data !== null && !Array.isArray(data) && !trace ? <Json text={JSON.stringify(data)} /> : null}
      <button type="button" class="btn small quiet" onClick={() => void copy(faultText(fault) + (trace ? `\n${trace}` : ""), "error copied")}><Icon name="copy" />Copy</button>
    </div>
  );
}

function Tries({ tries }: { tries: Try[] }) {
  const last = tries.slice(-8);
  return (
    <table class="plain tight">
      <tbody>
        {tries.length > last.length ? <tr><td class="muted" colSpan={4}>{count(tries.length - last.length)} before</td></tr> : null}
        {last.map((each) => (
          <tr key={each.number}>
            <td><Status status={each.outcome === "succeeded" ? "completed" : each.outcome === "failed" || each.outcome === "timedout" ? "failed" : each.outcome === "cancelled" ? "cancelled" : each.option || each.outcome === "entered" ? "completed" : "waiting"}>{each.option ? `${each.option} by ${each.by || "nobody"}` : each.outcome === "entered" ? `${count(each.items ?? 0)} items` : (each.outcome ?? "")}</Status></td>
            <td class="num">{each.seconds !== undefined ? span(each.seconds) : ""}</td>
            <td><Moment at={each.at} /></td>
            <td class="muted cut">{each.run ? <a class="link" href={runHref(each.run)}>run</a> : each.worker}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Value({ title, value, root, download }: { title: string; value: ValuePart | null | undefined; root: string; download?: string }) {
  if (!value) return null;
  return (
    <section>
      <h3 class="row">{title}<span class="grow" />{value.text !== undefined ? <button type="button" class="btn small quiet" onClick={() => void copy(value.text ?? "", "copied as JSON")}><Icon name="copy" />Copy</button> : null}</h3>
      {value.text !== undefined ? <Json text={value.text} root={root} label={title} /> : value.ref ? <BigValue part={value} {...(download ? { download } : {})} /> : null}
    </section>
  );
}

function BigValue({ part, download }: { part: ValuePart; download?: string }) {
  const reference = part.ref;
  if (!reference) return null;
  return (
    <div class="big-value">
      <p class="muted">{bytes(reference.size)}, the first {bytes(Math.min(reference.size, 2048))}{download ? <> · <a class="link" href={download} download>download all</a></> : null}</p>
      <pre class="wrap">{reference.beginning}</pre>
    </div>
  );
}

