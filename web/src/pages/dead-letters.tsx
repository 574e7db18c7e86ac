// What failed for good and was handled by nothing, grouped by its reason.
import { useEffect, useState } from "preact/hooks";
import { get, inNamespace } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import type { Page } from "../api/types";
import { useKeys } from "../app/keys";
import { choose, href, place, runHref } from "../app/router";
import { ManyDialog, ManyProgress, type Operation } from "../ui/many";
import { Button, CommandLine, count, Empty, Part } from "../ui/parts";
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
  const [isAsked, setAsked] = useState(false);
  const [operation, setOperation] = useState<Operation | null>(null);
  const over = () => {
    onDone();
    letters.reload();
  };
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
      {operation ? <ManyProgress key={operation.id} operation={operation} onOver={over} /> : null}
      <div class="row buttons">
        <Button kind="primary" needs="operate" onClick={() => setAsked(true)}>Retry all of them</Button>
        <span class="muted">fingerprint <code>{group.fingerprint}</code></span>
      </div>
      {isAsked ? (
        <ManyDialog title="Retry what failed for this reason" action="redrive" filter={{ fingerprint: group.fingerprint }} onClose={() => setAsked(false)} onGone={setOperation}
          about="Each is retried from the step that failed; what is finished in it is not done again. In a run that completed although items failed, only these run again."
          command={`refold dlq redrive ${group.fingerprint}`} />
      ) : null}
    </div>
  );
}
