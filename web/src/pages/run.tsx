// The page of one run: its head, its tabs, and the slider under all of them.
import { useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { useKeys } from "../app/keys";
import { useActions } from "../app/palette";
import { choose, href, place, runHref } from "../app/router";
import { GraphView } from "../graph/graph";
import type { RunGraph } from "../graph/fold";
import { PastNotice, Slider, jumpTo } from "../run/slider";
import { RunActions } from "../run/actions";
import { Data } from "../run/data";
import { Family } from "../run/family";
import { History } from "../run/history";
import { Logs } from "../run/logs";
import { openRun, type RunModel } from "../run/model";
import { faultText, shownStatus, StepDetail, Steps } from "../run/steps";
import { TimeSpent, Timeline } from "../run/timeline";
import { Usage } from "../run/usage";
import { Icon } from "../ui/icons";
import { copy, count, Empty, Loading, Part, Trouble } from "../ui/parts";
import { Glyph, toneOf } from "../ui/status";
import { inZone, Moment, Took } from "../ui/time";

const TABS = [
  ["steps", "Steps"], ["graph", "Graph"], ["timeline", "Timeline"], ["history", "History"],
  ["data", "Data"], ["logs", "Logs"], ["family", "Family"], ["usage", "Usage"],
] as const;

export function Run({ run }: { run: string }) {
  const model = useMemo(() => openRun(run), [run]);
  useEffect(() => () => model.stop(), [model]);
  const head = model.head.value;
  const tab = TABS.some(([name]) => name === place.value.query["tab"]) ? (place.value.query["tab"] as string) : "steps";
  useKeys(TABS.map(([name, label], index) => ({ keys: String(index + 1), about: `tab ${label}`, do: () => choose({ tab: name }) })));
  useActions(TABS.map(([name, label]) => ({ name: `Tab ${label}`, hint: "this run", do: () => choose({ tab: name }) })), run);
  const isFailed = head?.status === "failed";
  // A failed run opens on what failed, unless the address says otherwise.
  useEffect(() => {
    if (isFailed && head?.error?.step && !place.value.query["step"] && !place.value.query["tab"] && !place.value.query["at"] && innerWidth > 820) choose({ step: head.error.step }, true);
  }, [isFailed]);
  useEffect(() => {
    document.title = head ? `${head.name || head.workflow} · ${head.status} · Refold` : "Refold";
    return () => { document.title = "Refold"; };
  }, [head?.name, head?.status]);
  if (!head) {
    return <div class="page run-page" data-page="run" data-state={model.error.value ? "failed" : "loading"}>{model.error.value ? <><div class="page-head"><h1>Run</h1></div><Trouble error={model.error.value} onAgain={() => void model.refresh()} /></> : <Loading />}</div>;
  }
  return (
    <div class="page fill run-page" data-page="run" data-state="ready">
      <RunHeader model={model} />
      <nav class="tabs" role="tablist" aria-label="Views of the run">
        {TABS.map(([name, label]) => (
          <a key={name} role="tab" aria-selected={tab === name} href={runHref(run, { ...place.value.query, tab: name, line: null })}>{label}
            {name === "history" ? <span class="n">{count(head.head)}</span> : name === "steps" ? <span class="n">{count(head.steps.length)}</span> : null}</a>
        ))}
      </nav>
      <PastNotice model={model} />
      <div class={`tab-body tab-${tab}`} role="tabpanel">
        {tab === "steps" ? <Steps model={model} /> : null}
        {tab === "graph" ? <GraphTab model={model} /> : null}
        {tab === "timeline" ? <><Timeline model={model} /><TimeSpent model={model} /></> : null}
        {tab === "history" ? <History model={model} /> : null}
        {tab === "data" ? <Data model={model} /> : null}
        {tab === "logs" ? <Logs model={model} /> : null}
        {tab === "family" ? <Family model={model} /> : null}
        {tab === "usage" ? <Usage model={model} /> : null}
      </div>
      <Slider model={model} />
    </div>
  );
}

/** What the run does now, in a sentence. */
function sentence(model: RunModel): string {
  const head = model.head.value;
  const shown = model.shown.value;
  if (!head || !shown) return "";
  if (shown.at !== null) return "";
  if (head.why) return head.why;
  if (head.status === "completed") return "";
  const running = shown.rows.filter((row) => shownStatus(row) === "running").map((row) => row.step);
  return running.length ? `${running.slice(0, 4).join(", ")}${running.length > 4 ? ` and ${running.length - 4} more` : ""} at work` : "";
}

function RunHeader({ model }: { model: RunModel }) {
  const head = model.head.value;
  const shown = model.shown.value;
  const says = useComputed(() => sentence(model)).value;
  if (!head) return null;
  const status = shown?.status ?? head.status;
  const error = shown?.at === null || !shown ? head.error : null;
  const labels = Object.entries(head.labels ?? {});
  return (
    <header class="run-head">
      <div class="page-head">
        <div class="col grow title">
          <div class="row crumbs muted">
            <a class="link" href={href("runs")}>Runs</a><span>/</span><a class="link cut" href={href("runs", { workflow: head.workflow })}>{head.workflow}</a>
            {head.parent ? <><span>/</span><a class="link" href={runHref(head.parent)}>its parent</a></> : null}
          </div>
          <div class="row">
            <h1 class="cut" title={head.name || head.id}>{head.name || head.id.slice(0, 12)}</h1>
            <span class={`badge big tone-${toneOf(status)}`}><Glyph status={status} />{status}</span>
          </div>
        </div>
        <RunActions model={model} />
      </div>
      <dl class="facts-line">
        <div><dt>began</dt><dd><Moment at={head.created_at} /></dd></div>
        <div><dt>{head.ended_at ? "took" : "for"}</dt><dd><Took from={head.created_at} to={head.ended_at} /></dd></div>
        <div><dt>run</dt><dd><button type="button" class="mini mono" title={head.id} onClick={() => void copy(head.id, "id copied")}>{head.id.slice(0, 8)}</button></dd></div>
        <div><dt>plan</dt><dd><button type="button" class="mini mono" title={head.plan} onClick={() => void copy(head.plan, "hash copied")}>{head.plan.slice(0, 8)}</button></dd></div>
        {head.key ? <div><dt>key</dt><dd class="mono cut">{head.key}</dd></div> : null}
        {labels.map(([name, value]) => <div key={name}><dt class="sr">label</dt><dd><a class="chip" href={href("runs", { label: `${name}:${value}` })}>{name} <b>{value}</b></a></dd></div>)}
      </dl>
      {error && head.status === "failed" ? (
        <div class="run-error" role="status">
          <Icon name="alert" />
          <span class="col grow">
            {error.step ? <button type="button" class="mini strong" onClick={() => choose({ tab: "steps", step: error.step ?? null })}>{error.step}</button> : null}
            <span class="wrap clamp">{error.kind && error.kind !== "run" ? faultText({ ...error, kind: error.kind }) : error.why || error.message}</span>
          </span>
          <button type="button" class="btn small" onClick={() => void jumpTo(model.id, { q: "failed" }, "failure")}>the moment it failed</button>
        </div>
      ) : says ? <p class={`says tone-${toneOf(status)}`}>{inZone(says)}</p> : null}
      {model.isGone.value ? <p class="stale">This run has been removed. What you see is what it was.</p> : null}
    </header>
  );
}

function GraphTab({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const at = model.at.value;
  const shown = model.shown.value;
  const chosen = place.value.query["step"] ?? "";
  const found = useResource(`${model.id}|${at ?? head}`, (abort) => get<RunGraph>(runPath(model.id, "graph"), { at }, abort), true);
  const rows = useMemo(() => new Map(shown?.rows.map((each) => [each.step, each])), [shown]);
  return (
    <div class={`sides ${chosen ? "with-detail" : ""}`}>
      <div class="col split-main">
        <Part of={found.state.value}>{(graph) => graph.steps.length ? (
          <GraphView graph={graph} id={graph.plan ?? ""} rows={rows} changed={shown?.changed ?? new Set()} chosen={chosen} statusOf={shownStatus}
            onChoose={(step) => choose({ step }, true)} onOpen={(step) => { const row = rows.get(step); if (row?.count) location.hash = href(["runs", model.id, "loops", step]).slice(1); else if (row?.reason?.run) location.hash = runHref(row.reason.run).slice(1); }} />
        ) : <Empty title="This workflow has no steps." />}</Part>
      </div>
      {chosen ? <StepDetail key={chosen} model={model} step={chosen} /> : null}
    </div>
  );
}

