// What needs somebody now; then what runs, and the queues.
import { useEffect, useState } from "preact/hooks";
import { get, inNamespace, may } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import type { Page, RunRow } from "../api/types";
import { prefer, preferences } from "../app/preferences";
import { go, href, runHref } from "../app/router";
import { overview, type Overview } from "../app/shell";
import { useKeys } from "../app/keys";
import { Button, CommandLine, count, Empty, Loading, Part } from "../ui/parts";
import { Glyph, Status, toneOf } from "../ui/status";
import { inZone, ago, Moment, ms, now, Took } from "../ui/time";

interface Waiting {
  run: string;
  name: string | null;
  workflow: string;
  gate: string;
  type: string;
  visit: number;
  prompt?: string;
  assignee?: string | null;
  deadline: string | null;
}

type Group = Overview["dead_letters"][number];

const SHOWN = 6;
const UNSERVED = /no worker is running|no live worker|no worker has/;

export function Now() {
  const gates = useResource("gates", (abort) => get<Page<Waiting>>(inNamespace("gates"), {}, abort));
  const active = useResource("active", async (abort) => {
    const parts = await Promise.all(["running", "waiting", "paused"].map((status) => get<Page<RunRow>>(inNamespace("runs"), { status, why: true, limit: 30 }, abort)));
    return parts.flatMap((part) => part.items).sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  });
  const failed = useResource("failed", (abort) => get<Page<RunRow>>(inNamespace("runs"), { status: "failed", why: true, limit: 20 }, abort));
  const [since] = useState(preferences.value.seen);
  useEffect(() => {
    const ends = [
      subscribe("gates", (event) => { if (event.name === "gates") gates.set(event.data as Page<Waiting>); }),
      subscribe("runs?limit=20", (event) => { if (event.name === "runs") { active.reload(); failed.reload(); } }),
    ];
    return () => {
      for (const end of ends) end();
      prefer({ seen: new Date().toISOString() });
    };
  }, []);
  useKeys([{ keys: "g", about: "gates", do: () => go("gates") }, { keys: "r", about: "runs", do: () => go("runs") }]);
  const look = overview.value;
  const unserved = (active.state.value.data ?? []).filter((row) => UNSERVED.test(row.why ?? ""));
  const groups = look?.dead_letters ?? [];
  const waiting = gates.state.value.data?.items ?? [];
  const budget = (active.state.value.data ?? []).filter((row) => row.status === "paused" && /budget/.test(row.why ?? ""));
  const isReady = Boolean(look && gates.state.value.data && active.state.value.data);
  const needs = waiting.length + groups.length + unserved.length + budget.length;
  return (
    <div class="page now-page" data-page="now" data-state={isReady ? "ready" : gates.state.value.error ? "failed" : "loading"}>
      <div class="page-head"><h1>Now</h1>{look ? <Stats look={look} /> : null}</div>
      <div class="now-grid">
        <div class="col">
          <section class="card" aria-label="What needs somebody">
            <header><h2>Needs somebody</h2>{needs ? <span class="muted">{count(needs)}</span> : null}</header>
            {!isReady && !gates.state.value.error ? <Loading /> : null}
            <Part of={gates.state.value}>{() => null}</Part>
            {isReady && !needs ? <p class="calm"><Glyph status="completed" />Nothing needs you.</p> : null}
            <div class="rows">
              {[...waiting].sort((a, b) => ((a.deadline ?? "9") < (b.deadline ?? "9") ? -1 : 1)).slice(0, SHOWN).map((each) => <Asked key={`${each.run}/${each.gate}/${each.visit}`} each={each} />)}
              {waiting.length > SHOWN ? <a class="need link" href={href("gates")}><span />{count(waiting.length - SHOWN)} more wait for a decision</a> : null}
              {unserved.slice(0, SHOWN).map((row) => (
                <div class="need" key={row.id}><Glyph status="stuck" /><div class="col"><div class="head"><a class="link cut strong" href={runHref(row.id)}>{row.name || row.id}</a><span class="muted">nobody serves it</span></div><p class="soft">{inZone(row.why ?? "")}</p><CommandLine text="refold worker" /></div></div>
              ))}
              {budget.map((row) => <div class="need" key={row.id}><Glyph status="paused" /><div class="col"><div class="head"><a class="link cut strong" href={runHref(row.id)}>{row.name || row.id}</a><span class="muted">stopped by its budget</span></div><p class="soft">{inZone(row.why ?? "")}</p></div></div>)}
              {groups.slice(0, SHOWN).map((group) => <Failures key={group.fingerprint} group={group} since={since} />)}
              {groups.length > SHOWN ? <a class="need link" href={href("dead-letters")}><span />{count(groups.length - SHOWN)} more groups of failures</a> : null}
            </div>
          </section>
          <section class="card" aria-label="Failed runs">
            <header><h2>Failed runs</h2><span class="grow" /><a class="link" href={href("runs", { status: "failed" })}>all</a></header>
            <Part of={failed.state.value}>{(page) => page.items.length ? <div class="rows">{page.items.slice(0, 8).map((row) => <RunLine key={row.id} row={row} isNew={since !== "" && (row.ended_at ?? "") > since} />)}</div> : <p class="calm">No run has failed.</p>}</Part>
          </section>
        </div>
        <div class="col">
          <section class="card" aria-label="What runs">
            <header><h2>Under way</h2>{active.state.value.data ? <span class="muted">{count(active.state.value.data.length)}</span> : null}<span class="grow" /><a class="link" href={href("runs")}>all</a></header>
            <Part of={active.state.value}>{(rows) => rows.length ? <div class="rows">{rows.slice(0, 12).map((row) => <RunLine key={row.id} row={row} isNew={false} />)}</div> : <Empty title="Nothing runs."><p>This command starts a run:</p><CommandLine text="refold run FILE.yaml --detach" /></Empty>}</Part>
          </section>
          <section class="card" aria-label="Queues">
            <header><h2>Queues</h2><span class="muted">{look ? `${count(look.workers)} ${look.workers === 1 ? "worker" : "workers"}` : ""}</span></header>
            {look ? look.queues.length ? <Queues look={look} /> : <p class="calm">Nothing waits for a worker.</p> : <Loading lines={2} />}
            {look && !look.workers ? <div class="body col"><p class="soft">No worker is alive. This command starts one:</p><CommandLine text="refold worker" /></div> : null}
          </section>
        </div>
      </div>
    </div>
  );
}

function Stats({ look }: { look: Overview }) {
  return (
    <div class="stat-row">
      {(["running", "waiting", "paused", "failed", "completed"] as const).map((status) => {
        const found = look.runs[status];
        const number = found?.count ?? 0;
        return <a key={status} class={`stat ${number && status !== "completed" ? `tone-${toneOf(status)}` : ""} ${number ? "" : "none"}`} href={href("runs", { status })}><b>{count(number, found?.capped ?? false)}</b><span>{status}</span></a>;
      })}
    </div>
  );
}

function Asked({ each }: { each: Waiting }) {
  const isLate = each.deadline && ms(each.deadline) - now.value < 3_600_000;
  return (
    <div class="need">
      <Glyph status="waiting" />
      <div class="col">
        <div class="head"><a class="link cut strong" href={runHref(each.run, { tab: "steps", step: each.gate })}>{each.name || each.workflow}</a><span class="muted cut">{each.gate}</span></div>
        <p>{each.prompt ?? (may("values") ? "" : "a decision")}</p>
        <p class="muted">{each.assignee ? `for ${each.assignee}` : "for anybody"}{each.deadline ? <>, until <Moment at={each.deadline} /> <span class={isLate ? "tone-failed said" : ""}>({ago(ms(each.deadline))})</span></> : null}</p>
      </div>
      <Button isSmall kind="primary" needs="decide" onClick={() => go("gates", { run: each.run, gate: each.gate })}>Decide</Button>
    </div>
  );
}

function Failures({ group, since }: { group: Group; since: string }) {
  const isNew = since !== "" && (group.last ?? "") > since;
  return (
    <div class="need">
      <Glyph status="failed" />
      <div class="col">
        <div class="head"><a class="link strong" href={href("dead-letters", { group: group.fingerprint })}>{count(group.commands)} × {group.kind}</a><span class="muted cut">{group.tool}</span>{isNew ? <span class="badge tone-failed">new</span> : null}</div>
        <p class="soft">{group.message}</p>
      </div>
      <span class="muted"><Moment at={group.last} relative /></span>
    </div>
  );
}

function RunLine({ row, isNew }: { row: RunRow; isNew: boolean }) {
  return (
    <a class="now-run" href={runHref(row.id)}>
      <Status status={row.status} /><span class="row"><span class="cut strong">{row.name || row.id}</span>{isNew ? <span class="badge tone-failed">new</span> : null}</span>
      <span class="num muted">{row.ended_at ? <Moment at={row.ended_at} /> : <Took from={row.created_at} to={row.ended_at} />}</span>
      {row.why ? <span class="why-line cut" title={inZone(row.why)}>{inZone(row.why ?? "")}</span> : null}
    </a>
  );
}

function Queues({ look }: { look: Overview }) {
  return (
    <table class="plain">
      <thead><tr><th>queue</th><th class="num">waiting</th><th class="num">at work</th><th class="num">oldest</th></tr></thead>
      <tbody>{look.queues.map((each) => <tr key={each.name}><td>{each.name}</td><td class="num">{count(each.waiting)}</td><td class="num">{count(each.leased)}</td><td class="num">{each.oldest ? ago(ms(each.oldest)) : "-"}</td></tr>)}</tbody>
    </table>
  );
}
