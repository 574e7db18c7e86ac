// What failed for good and was handled by nothing, grouped by its reason.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, get, inNamespace, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import type { Page, RunHead } from "../api/types";
import { useKeys } from "../app/keys";
import { choose, href, place, runHref } from "../app/router";
import { askFor, Button, CommandLine, count, Empty, notify, Part } from "../ui/parts";
import { Glyph } from "../ui/status";
import { Moment } from "../ui/time";

interface Group {
  fingerprint: string;
  tool: string;
  kind: string;
  message?: string;
  commands: number;
  runs: number;
  last: string;
}

interface Letter {
  run: string;
  step?: string;
  visit?: number;
  fingerprint: string;
  tool: string;
  kind: string;
  message?: string;
  at: string;
  workflow?: string;
  name?: string;
  count?: number;
  items?: number[];
}

const PAUSE = 100; // milliseconds between two retries, so that workers are not flooded

const plural = (number: number, one: string, many: string, isMore = false) => `${count(number, isMore)} ${number === 1 ? one : many}`;

export default function DeadLetters() {
  const { open = "", cursor = "" } = place.value.query;
  const groups = useResource<Page<Group>>(`${place.value.ns}|${cursor}`, (abort) => get(inNamespace("dead-letters"), { limit: 100, cursor }, abort), true);
  useEffect(() => subscribe("overview", () => groups.reload()), []);
  const found = groups.state.value.data?.items ?? [];
  const at = found.findIndex((group) => group.fingerprint === open);
  const step = (by: number) => {
    const next = found[Math.max(0, Math.min(found.length - 1, at + by))];
    if (next) choose({ open: next.fingerprint }, true);
  };
  useKeys([
    { keys: "j", about: "next group", do: () => step(1) },
    { keys: "k", about: "previous group", do: () => step(-1) },
  ]);
  return (
    <div class="page" data-page="dead-letters">
      <div class="page-head">
        <h1>Dead letters</h1>
        <span class="muted">{found.length ? `${plural(found.length, "reason", "reasons", groups.state.value.data?.more)}, ${plural(found.reduce((sum, each) => sum + each.commands, 0), "failure", "failures")}` : ""}</span>
      </div>
      <Part of={groups.state.value}>
        {(page) => page.items.length ? (
          <div class="card rows">
            {page.items.map((group) => <GroupRow key={group.fingerprint} group={group} isOpen={group.fingerprint === open} onDone={groups.reload} />)}
            {page.more ? <div class="more-row"><a class="btn" href={href("dead-letters", { cursor: page.next_cursor })}>Older reasons</a></div> : null}
          </div>
        ) : (
          <div class="card"><Empty title="Nothing has failed for good."><span>A failure that no retry and no arc of the workflow handles comes here, with its reason, and can be retried from here.</span></Empty></div>
        )}
      </Part>
      <CommandLine text="refold dlq list" />
    </div>
  );
}

function GroupRow({ group, isOpen, onDone }: { group: Group; isOpen: boolean; onDone: () => void }) {
  return (
    <section class="gate" aria-label={group.message ?? group.kind}>
      <div class="gate-head">
        <button type="button" class="gate-title" aria-expanded={isOpen} onClick={() => choose({ open: isOpen ? null : group.fingerprint })}>
          <Glyph status="failed" />
          <span class="wrap grow"><span class="strong">{group.kind}</span> of <code>{group.tool || "the workflow"}</code>{group.message ? `: ${group.message}` : ""}</span>
        </button>
        <span class="gate-about">
          <span class="badge tone-failed">{count(group.commands)} in {count(group.runs)} {group.runs === 1 ? "run" : "runs"}</span>
          <span class="soft">last <Moment at={group.last} /></span>
        </span>
      </div>
      {isOpen ? <Letters group={group} onDone={onDone} /> : null}
    </section>
  );
}

function Letters({ group, onDone }: { group: Group; onDone: () => void }) {
  const letters = useResource<{ items: Letter[] }>(group.fingerprint, (abort) => get(inNamespace("dead-letters", group.fingerprint), {}, abort));
  const [progress, setProgress] = useState<Progress | null>(null);
  const stopped = useRef(false);
  useEffect(() => () => { stopped.current = true; }, []);
  const found = letters.state.value.data?.items ?? [];
  const redrive = async () => {
    stopped.current = false;
    await retryAll([...new Set(found.map((each) => each.run))], (now) => { setProgress(now); return stopped.current; });
    onDone();
    letters.reload();
  };
  const confirm = () => askFor({
    title: "Retry what failed for this reason",
    body: () => (
      <>
        <p>{count(group.runs)} {group.runs === 1 ? "run is" : "runs are"} retried, each from the step that failed, ten runs a second. What is finished in them is not done again.</p>
        <CommandLine text={`refold dlq redrive ${group.fingerprint}`} />
      </>
    ),
    actions: [{ label: `Retry ${count(group.runs)} ${group.runs === 1 ? "run" : "runs"}`, kind: "primary", do: () => void redrive() }],
  });
  return (
    <div class="gate-body">
      <Part of={letters.state.value}>
        {({ items }) => (
          <div class="table-scroll" tabIndex={0}>
            <table class="plain">
              <thead><tr><th>Run</th><th>Workflow</th><th>Step</th><th class="num">Failures</th><th>Message</th><th>When</th></tr></thead>
              <tbody>
                {items.slice(0, 200).map((letter) => (
                  <tr key={`${letter.run}/${letter.step}/${letter.visit}`}>
                    <td><a class="link" href={runHref(letter.run, { step: letter.step, visit: letter.visit })}>{letter.name || letter.run.slice(0, 8)}</a></td>
                    <td>{letter.workflow ?? ""}</td>
                    <td>{letter.step ?? ""}{letter.items?.length ? <span class="muted"> items {letter.items.slice(0, 5).join(", ")}{letter.items.length > 5 ? " …" : ""}</span> : null}</td>
                    <td class="num">{count(letter.count ?? 1)}</td>
                    <td class="wrap">{letter.message ?? ""}</td>
                    <td><Moment at={letter.at} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
            {items.length > 200 ? <p class="muted">{count(items.length - 200)} more; <code>refold dlq show {group.fingerprint}</code> prints all of them.</p> : null}
          </div>
        )}
      </Part>
      {progress ? <Outcome progress={progress} onStop={() => { stopped.current = true; }} /> : null}
      <div class="row buttons">
        <Button kind="primary" needs="operate" why={progress && !progress.isOver ? "under way" : ""} onClick={confirm}>Retry all of them</Button>
        <span class="muted">fingerprint <code>{group.fingerprint}</code></span>
      </div>
    </div>
  );
}

interface Progress {
  all: number;
  done: number;
  refused: { run: string; why: string }[];
  isOver: boolean;
}

function Outcome({ progress, onStop }: { progress: Progress; onStop: () => void }) {
  return (
    <div class="col gap-s" role="status">
      <div class="row">
        <span class="bar grow tone-running"><i style={{ width: `${(100 * progress.done) / Math.max(1, progress.all)}%` }} /></span>
        <span>{count(progress.done)} of {count(progress.all)}</span>
        {progress.isOver ? null : <Button isSmall onClick={onStop}>Stop</Button>}
      </div>
      {progress.refused.slice(0, 10).map((each) => <p class="fault" key={each.run}><a class="link" href={runHref(each.run)}>{each.run.slice(0, 8)}</a>: {each.why}</p>)}
    </div>
  );
}

/** Retry runs one after the other. A child is retried through its topmost parent. `tell` returns whether to stop. */
async function retryAll(runs: readonly string[], tell: (now: Progress) => boolean): Promise<void> {
  const now: Progress = { all: runs.length, done: 0, refused: [], isOver: false };
  const retried = new Set<string>();
  for (const run of runs) {
    if (tell({ ...now })) break;
    try {
      let answer = await ask<RunHead>(runPath(run));
      while (answer.data.parent) answer = await ask<RunHead>(runPath(answer.data.parent));
      if (!retried.has(answer.data.id)) {
        retried.add(answer.data.id);
        await ask(runPath(answer.data.id, "retry"), { method: "POST", body: {}, ifMatch: answer.tag });
      }
    } catch (error) {
      now.refused = [...now.refused, { run, why: (error as Error).message }];
    }
    now.done += 1;
    await new Promise((resume) => setTimeout(resume, PAUSE));
  }
  tell({ ...now, isOver: true });
  notify(now.refused.length ? `${count(retried.size - now.refused.length)} retried, ${count(now.refused.length)} refused` : `${count(retried.size)} retried`, now.refused.length > 0);
}
