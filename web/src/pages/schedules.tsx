// When workflows start by themselves: the next times, what became of the last ones, and how to change it.
import { useEffect, useState } from "preact/hooks";
import { ask, get, inNamespace, may, Problem } from "../api/client";
import { useResource } from "../api/resource";
import type { Page } from "../api/types";
import { go, href, place, runHref } from "../app/router";
import { JsonOf } from "../ui/json";
import { askFor, Button, CommandLine, count, Dialog, Empty, notify, Part, quoted } from "../ui/parts";
import { Labelled } from "../ui/schema-form";
import { Glyph, Status } from "../ui/status";
import { Moment, momentText, span } from "../ui/time";

interface Schedule {
  id: string;
  workflow: string;
  plan: string;
  input?: Record<string, unknown>;
  labels: Record<string, string>;
  cron: string[];
  every: string | number | null;
  at: string[];
  zone: string;
  from: string | null;
  until: string | null;
  overlap: string;
  catch_up: { policy: string; within: number | string; most: number };
  pause_after: number | null;
  state: "active" | "paused" | "over";
  note: string;
  by: string;
  file: string;
  planned: string | null;
  next: string | null;
  previous: string | null;
  open_runs: string[];
  waiting: string[];
  failures: number;
}

interface Time {
  planned: string;
  until: string | null;
  count: number | null;
  state: string;
  at: string;
  why: string;
  run: string;
  how: string;
}

interface Backfill {
  id: string;
  from: string;
  until: string;
  state: "running" | "paused" | "done" | "stopped";
  total: number;
  left: number;
  started: number;
  failed: number;
  left_out: number;
  why: string;
}

interface Whole extends Schedule {
  times: Time[];
  backfills: Backfill[];
}

interface Upcoming {
  local: string;
  utc: string;
  note: string;
}

const STATES: Record<string, string> = { active: "running", paused: "paused", over: "completed" };
const OUTCOMES: Record<string, string> = { started: "completed", skipped: "skipped", missed: "failed", waiting: "waiting" };
const DEFINITION = "apiVersion: refold/v1\nkind: Schedule\nmetadata: {name: NAME}\nworkflow: WORKFLOW\ncron: \"30 6 * * MON-FRI\"\nzone: Europe/Berlin\n";
const AGAIN = 10_000; // milliseconds

/** When, in words that a line of a table has room for. */
function whenText(schedule: Schedule): string {
  if (schedule.cron.length) return schedule.cron.join(" and ");
  if (schedule.every) return `every ${typeof schedule.every === "number" ? span(schedule.every) : schedule.every}`;
  return schedule.at.length ? `${count(schedule.at.length)} ${schedule.at.length === 1 ? "moment" : "moments"}` : "-";
}

export default function Schedules() {
  const id = place.value.path[1];
  return id ? <OneSchedule key={id} id={id} /> : <AllSchedules />;
}

function AllSchedules() {
  const { cursor = "" } = place.value.query;
  const schedules = useResource<Page<Schedule>>(`${place.value.ns}|${cursor}`, (abort) => get(inNamespace("schedules"), { limit: 100, cursor }, abort), true);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isMaking, setMaking] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) schedules.reload(); }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const toggle = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  const all = async (action: "pause" | "resume") => {
    const outcomes = await Promise.allSettled([...selected].map((id) => ask(inNamespace("schedules", id, action), { method: "POST", body: {} })));
    const failed = outcomes.filter((each) => each.status === "rejected").length;
    notify(`${count(selected.size - failed)} ${action}d${failed ? `, ${count(failed)} refused` : ""}`, failed > 0);
    setSelected(new Set());
    schedules.reload();
  };
  return (
    <div class="page" data-page="schedules">
      <div class="page-head"><h1>Schedules</h1><span class="muted">{schedules.state.value.data?.items.length ? count(schedules.state.value.data.items.length) : ""}</span><span class="spacer" />
        <Button kind="primary" needs="write" onClick={() => setMaking(true)}>New schedule</Button></div>
      {selected.size ? (
        <div class="selection" role="status"><b>{count(selected.size)} selected</b><span class="spacer" />
          <Button isSmall needs="operate" onClick={() => void all("pause")}>Pause {count(selected.size)}</Button>
          <Button isSmall needs="operate" onClick={() => void all("resume")}>Resume {count(selected.size)}</Button></div>
      ) : null}
      <Part of={schedules.state.value} lines={5}>
        {(page) => page.items.length ? (
          <div class="card table-scroll" tabIndex={0}><table class="plain">
            <thead><tr><th><span class="sr">Select</span></th><th>Name</th><th>State</th><th>Starts</th><th>When</th><th>Next</th><th>Last</th><th>If one is still running</th></tr></thead>
            <tbody>
              {page.items.map((each) => (
                <tr key={each.id}>
                  <td><input type="checkbox" aria-label={`Select ${each.id}`} checked={selected.has(each.id)} onChange={() => toggle(each.id)} /></td>
                  <td><a class="link strong wrap" href={href(["schedules", each.id])}>{each.id}</a>{each.note ? <div class="soft wrap">{each.note}</div> : null}</td>
                  <td><Status status={STATES[each.state] ?? "pending"}>{each.state}</Status></td>
                  <td><a class="link" href={href(["workflows", each.workflow])}>{each.workflow}</a></td>
                  <td><code>{whenText(each)}</code> <span class="muted">{each.zone}</span></td>
                  <td><Moment at={each.next} /></td>
                  <td><Moment at={each.previous} /></td>
                  <td class="soft">{each.overlap}{each.failures ? <span class="fault"> {count(each.failures)} failed in a row</span> : null}</td>
                </tr>
              ))}
            </tbody>
          </table>{page.more ? <div class="more-row"><a class="btn" href={href("schedules", { cursor: page.next_cursor })}>More</a></div> : null}</div>
        ) : (
          <div class="card"><Empty title="Nothing starts by itself."><span>A schedule starts a workflow at its times, each planned time once, however many servers there are.</span><CommandLine text="refold schedules create nightly.yaml" /></Empty></div>
        )}
      </Part>
      {isMaking ? <NewSchedule onClose={() => setMaking(false)} /> : null}
      <CommandLine text="refold schedules list" />
    </div>
  );
}

function OneSchedule({ id }: { id: string }) {
  const found = useResource<Whole>(`${place.value.ns}/${id}`, (abort) => ask(inNamespace("schedules", id), { query: { times: 100 }, signal: abort }), true);
  const upcoming = useResource<{ items: Upcoming[]; zone: string; rules: unknown }>(`${place.value.ns}/${id}`, (abort) => ask(inNamespace("schedules:preview"), { method: "POST", body: { id, limit: 10 }, signal: abort }), true);
  const [dialog, setDialog] = useState<"pause" | "backfill" | "">("");
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) found.reload(); }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const act = (action: string, body: unknown = {}, said = "") =>
    ask<Whole & { passed?: number; paused_at?: string | null }>(inNamespace("schedules", id, action), { method: "POST", body }).then(
      (answer) => {
        notify(answer.data.passed ? `Resumed. ${count(answer.data.passed)} times have passed meanwhile: a backfill starts them.` : said);
        found.reload();
        upcoming.reload();
      },
      (error: Error) => notify(error.message, true),
    );
  const remove = () => askFor({
    title: `Delete the schedule ${id}`,
    body: () => <><p>Its history and its backfills go too. Its runs stay, and those that run go on.</p><CommandLine text={`refold schedules delete ${quoted(id)}`} /></>,
    actions: [{
      label: "Delete", kind: "danger", do: () =>
        ask(inNamespace("schedules", id), { method: "DELETE", ifMatch: found.state.value.tag }).then(() => { notify(`${id} is deleted`); go("schedules"); }, (error: Error) => notify(error.message, true)),
    }],
  });
  const close = () => {
    setDialog("");
    found.reload();
    upcoming.reload();
  };
  return (
    <div class="page" data-page="schedules">
      <Part of={found.state.value} lines={6}>
        {(schedule) => (
          <>
            <div class="page-head">
              <a class="soft" href={href("schedules")}>Schedules</a><span class="muted">/</span><h1 class="wrap">{id}</h1>
              <Status status={STATES[schedule.state] ?? "pending"}>{schedule.state}</Status><span class="spacer" />
              <div class="row buttons">
                <Button kind="primary" needs="operate" onClick={() => void act("trigger", {}, "A run was started.")}>Start now</Button>
                {schedule.state === "paused" ? <Button needs="operate" onClick={() => void act("resume", {}, "Resumed.")}>Resume</Button> :
                  <Button needs="operate" why={schedule.state === "over" ? "it has no more times" : ""} onClick={() => setDialog("pause")}>Pause</Button>}
                <Button needs="operate" onClick={() => setDialog("backfill")}>Backfill</Button>
                <Button needs="write" kind="danger" why={schedule.file ? `it stands in ${schedule.file}` : ""} onClick={remove}>Delete</Button>
              </div>
            </div>
            {schedule.note ? <p class="notice">{schedule.note}</p> : null}
            <div class="split">
              <section class="card" aria-label="What became of its times">
                <header><h2>Last times</h2><Outcomes times={schedule.times} /></header>
                {schedule.times.length ? <Times times={schedule.times} /> : <Empty title="None of its times has come yet." />}
              </section>
              <div class="col gap-l">
                <section class="card" aria-label="Next times">
                  <header><h2>Next times</h2></header>
                  <Part of={upcoming.state.value}>{({ items, zone }) => <NextTimes items={items} zone={zone} />}</Part>
                </section>
                <About schedule={schedule} />
                <Backfills schedule={id} items={schedule.backfills} onDone={found.reload} />
              </div>
            </div>
            {dialog === "pause" ? <PauseDialog id={id} onClose={close} /> : null}
            {dialog === "backfill" ? <BackfillDialog id={id} onClose={close} /> : null}
          </>
        )}
      </Part>
      <CommandLine text={`refold schedules show ${quoted(id)}`} />
    </div>
  );
}

function Outcomes({ times }: { times: readonly Time[] }) {
  return <span class="dots" role="group" aria-label="Outcomes, the newest first">{times.slice(0, 30).map((each) => <span key={each.planned + each.at} role="img" aria-label={each.state} title={`${each.state}${each.why ? `: ${each.why}` : ""}`}><Glyph status={OUTCOMES[each.state] ?? "pending"} /></span>)}</span>;
}

function Times({ times }: { times: readonly Time[] }) {
  return (
    <div class="table-scroll" tabIndex={0}><table class="plain">
      <thead><tr><th>Planned</th><th>Outcome</th><th class="num">Late by</th><th>Run or reason</th></tr></thead>
      <tbody>
        {times.map((each) => {
          const late = (Date.parse(each.at) - Date.parse(each.planned)) / 1000;
          return (
            <tr key={each.planned + each.at}>
              <td><Moment at={each.planned} />{(each.count ?? 0) > 1 ? <span class="muted"> and {count((each.count ?? 0) - 1)} more</span> : null}</td>
              <td><Status status={OUTCOMES[each.state] ?? "pending"}>{each.state}{each.how === "planned" ? "" : ` (${each.how})`}</Status></td>
              <td class="num">{each.state === "started" && late >= 0 ? span(late) : "-"}</td>
              <td class="wrap">{each.run ? <a class="link" href={runHref(each.run)}>{each.run.slice(0, 8)}</a> : null} <span class="soft">{each.why}</span></td>
            </tr>
          );
        })}
      </tbody>
    </table></div>
  );
}

/** Each time in the zone of the schedule, and in the zone of the page. */
function NextTimes({ items, zone }: { items: readonly Upcoming[]; zone: string }) {
  if (!items.length) return <Empty title="It has no more times." />;
  return (
    <table class="plain">
      <thead><tr><th>{zone}</th><th>Here</th><th>Note</th></tr></thead>
      <tbody>
        {items.map((each) => (
          <tr key={each.utc}><td>{momentText(Date.parse(each.utc), zone).slice(0, 16)} <span class="muted">{each.local.slice(-6)}</span></td><td><Moment at={each.utc} /></td><td class="fault">{each.note}</td></tr>
        ))}
      </tbody>
    </table>
  );
}

function About({ schedule }: { schedule: Whole }) {
  return (
    <section class="card" aria-label="About it">
      <header><h2>About it</h2></header>
      <div class="body col gap-l">
        <dl class="facts">
          <dt>Starts</dt><dd><a class="link" href={href(["workflows", schedule.workflow])}>{schedule.workflow}</a></dd>
          <dt>When</dt><dd><code>{whenText(schedule)}</code> {schedule.zone}</dd>
          <dt>If one is still running</dt><dd>{schedule.overlap}</dd>
          <dt>Missed times</dt><dd>{schedule.catch_up.policy}{schedule.catch_up.policy === "none" ? "" : `, at most ${count(schedule.catch_up.most)}`}</dd>
          <dt>Pauses itself</dt><dd>{schedule.pause_after ? `after ${count(schedule.pause_after)} failed runs in a row` : "never"}</dd>
          <dt>Running now</dt><dd>{schedule.open_runs.length ? schedule.open_runs.map((run) => <a key={run} class="link" href={runHref(run)}>{run.slice(0, 8)} </a>) : "nothing"}</dd>
          {schedule.waiting.length ? <><dt>Waiting</dt><dd>{count(schedule.waiting.length)}</dd></> : null}
          <dt>Made by</dt><dd>{schedule.file || schedule.by || "-"}</dd>
        </dl>
        {schedule.input && Object.keys(schedule.input).length ? <JsonOf value={schedule.input} label="Its input" /> : null}
      </div>
    </section>
  );
}

function Backfills({ schedule, items, onDone }: { schedule: string; items: readonly Backfill[]; onDone: () => void }) {
  if (!items.length) return null;
  const steer = (id: string, action: string) => ask(inNamespace("schedules", schedule, "backfills", id, action), { method: "POST", body: {} }).then(onDone, (error: Error) => notify(error.message, true));
  return (
    <section class="card" aria-label="Backfills">
      <header><h2>Backfills</h2></header>
      <div class="rows">
        {items.map((each) => (
          <div key={each.id} class="body col gap-s">
            <div class="row"><Status status={each.state === "running" ? "running" : each.state === "done" ? "completed" : each.state === "paused" ? "paused" : "cancelled"}>{each.state}</Status>
              <span><Moment at={each.from} /> to <Moment at={each.until} /></span></div>
            <span class="bar tone-running"><i style={{ width: `${(100 * (each.total - each.left)) / Math.max(1, each.total)}%` }} /></span>
            <div class="row"><span class="soft">{count(each.total - each.left)} of {count(each.total)}{each.failed ? `, ${count(each.failed)} failed` : ""}{each.left_out ? `, ${count(each.left_out)} had runs already` : ""}</span><span class="spacer" />
              {each.state === "running" ? <Button isSmall needs="operate" onClick={() => void steer(each.id, "pause")}>Pause</Button> : null}
              {each.state === "paused" ? <Button isSmall needs="operate" onClick={() => void steer(each.id, "resume")}>Resume</Button> : null}
              {each.state === "running" || each.state === "paused" ? <Button isSmall kind="danger" needs="operate" onClick={() => void steer(each.id, "stop")}>Stop</Button> : null}</div>
            {each.why ? <p class="fault">{each.why}</p> : null}
          </div>
        ))}
      </div>
    </section>
  );
}

function PauseDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [note, setNote] = useState("");
  const pause = () => void ask(inNamespace("schedules", id, "pause"), { method: "POST", body: { note } }).then(() => { notify(`${id} is paused`); onClose(); }, (error: Error) => notify(error.message, true));
  return (
    <Dialog title={`Pause ${id}`} onClose={onClose} footer={<><Button kind="quiet" onClick={onClose}>Close</Button><Button kind="primary" needs="operate" onClick={pause}>Pause</Button></>}>
      <p>No run is started until it is resumed. Times that pass meanwhile are not caught up by resuming; a backfill can start them.</p>
      <Labelled id="pause-note" label="Why" isRequired={false} about="others see it here"><input class="field" id="pause-note" value={note} onInput={(event) => setNote(event.currentTarget.value)} /></Labelled>
      <CommandLine text={`refold schedules pause ${quoted(id)}${note ? ` --note ${quoted(note)}` : ""}`} />
    </Dialog>
  );
}

function BackfillDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [since, setSince] = useState("1d");
  const [until, setUntil] = useState("");
  const [only, setOnly] = useState("missing");
  const [atOnce, setAtOnce] = useState("1");
  const [counted, setCounted] = useState<{ count: number; have_runs: number; times: string[] } | null>(null);
  const [error, setError] = useState("");
  const body = { from: since, ...(until ? { until } : {}), only, at_once: Number(atOnce) || 1 };
  const failed = (problem: Error) => setError(problem instanceof Problem ? problem.message : problem.message);
  const changed = (set: (value: string) => void) => (event: { currentTarget: { value: string } }) => {
    set(event.currentTarget.value);
    setCounted(null);
    setError("");
  };
  const dry = () => void ask<{ count: number; have_runs: number; times: string[] }>(inNamespace("schedules", id, "backfill"), { method: "POST", body: { ...body, dry_run: true } }).then((answer) => setCounted(answer.data), failed);
  const begin = () => void ask(inNamespace("schedules", id, "backfill"), { method: "POST", body }).then(() => { notify("The backfill has begun."); onClose(); }, failed);
  return (
    <Dialog title={`Backfill ${id}`} onClose={onClose} footer={
      <><Button kind="quiet" onClick={onClose}>Close</Button><Button needs="operate" onClick={dry}>Count them</Button>
        <Button kind="primary" needs="operate" why={counted ? (counted.count ? "" : "there is nothing to start") : "count them first"} onClick={begin}>{counted ? `Start ${count(counted.count)}` : "Start"}</Button></>
    }>
      <div class="form">
        <Labelled id="backfill-from" label="From" isRequired about="a moment, or a span ago such as 2d"><input class="field" id="backfill-from" value={since} onInput={changed(setSince)} /></Labelled>
        <Labelled id="backfill-until" label="Until" isRequired={false} about="nothing: now"><input class="field" id="backfill-until" value={until} onInput={changed(setUntil)} /></Labelled>
        <Labelled id="backfill-only" label="Which times" isRequired><select class="select" id="backfill-only" value={only} onChange={changed(setOnly)}><option value="missing">those without a run</option><option value="all">all, beside the runs there are</option></select></Labelled>
        <Labelled id="backfill-at-once" label="At once" isRequired><input class="field" id="backfill-at-once" inputMode="numeric" value={atOnce} onInput={changed(setAtOnce)} /></Labelled>
      </div>
      {counted ? <p role="status">{count(counted.count)} {counted.count === 1 ? "run" : "runs"} would be started{counted.have_runs ? `; ${count(counted.have_runs)} times have runs already` : ""}{counted.times[0] ? <>, the first for <Moment at={counted.times[0]} /></> : null}.</p> : null}
      {error ? <p class="fault" role="alert">{error}</p> : null}
      <CommandLine text={`refold schedules backfill ${quoted(id)} --from ${quoted(since)}${until ? ` --until ${quoted(until)}` : ""}`} />
    </Dialog>
  );
}

function NewSchedule({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [text, setText] = useState(DEFINITION);
  const [error, setError] = useState("");
  const [upcoming, setUpcoming] = useState<{ items: Upcoming[]; zone: string } | null>(null);
  const definition = text.replace("NAME", name || "NAME");
  useEffect(() => {
    const timer = setTimeout(() => {
      ask<{ items: Upcoming[]; zone: string }>(inNamespace("schedules:preview"), { method: "POST", body: { definition, limit: 5 } }).then(
        (answer) => { setUpcoming(answer.data); setError(""); },
        (problem: Error) => { setUpcoming(null); setError(problem.message); },
      );
    }, 400);
    return () => clearTimeout(timer);
  }, [definition]);
  const create = () => void ask(inNamespace("schedules", name), { method: "PUT", body: { definition } }).then(() => { notify(`${name} is made`); go(["schedules", name]); }, (problem: Error) => setError(problem.message));
  return (
    <Dialog title="New schedule" onClose={onClose} footer={<><Button kind="quiet" onClick={onClose}>Close</Button><Button kind="primary" needs="write" why={!name ? "it needs a name" : error ? "it has a mistake" : ""} onClick={create}>Create</Button></>}>
      <Labelled id="schedule-name" label="Name" isRequired><input class="field" id="schedule-name" value={name} onInput={(event) => setName(event.currentTarget.value)} /></Labelled>
      <Labelled id="schedule-text" label="Definition" isRequired about="as in a file of the kind Schedule"><textarea class="field" id="schedule-text" rows={9} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} /></Labelled>
      {error ? <p class="fault wrap" role="alert">{error}</p> : upcoming ? <NextTimes items={upcoming.items} zone={upcoming.zone} /> : null}
      {may("write") ? <CommandLine text={`refold schedules create ${quoted(name || "NAME")}.yaml`} /> : null}
    </Dialog>
  );
}
