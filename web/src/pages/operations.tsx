// Actions on many runs or schedules: counted first, then done at a rate, with an outcome for each.
import { useEffect } from "preact/hooks";
import { ask, get, inNamespace } from "../api/client";
import { useResource } from "../api/resource";
import { choose, href, place, runHref } from "../app/router";
import type { Operation } from "../ui/many";
import { Button, count, Empty, notify, Part } from "../ui/parts";
import { Status } from "../ui/status";
import { Moment } from "../ui/time";

interface Outcome {
  id: string;
  outcome: "waiting" | "done" | "refused";
  why: string | null;
}

const STATES: Record<Operation["state"], string> = { counted: "pending", running: "running", done: "completed", stopped: "cancelled" };
const OUTCOMES: Record<Outcome["outcome"], string> = { waiting: "waiting", done: "completed", refused: "failed" };
const AGAIN = 2000; // milliseconds

export default function Operations() {
  const { open = "" } = place.value.query;
  const operations = useResource<{ items: Operation[] }>(place.value.ns, (abort) => get(inNamespace("operations"), {}, abort), true);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) operations.reload(); }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="page" data-page="operations">
      <div class="page-head"><h1>Operations</h1><span class="muted">actions on many runs: counted first, then done at a rate</span></div>
      <Part of={operations.state.value}>
        {({ items }) => items.length ? (
          <div class="card rows">{items.map((each) => <Row key={each.id} operation={each} isOpen={each.id === open} onChanged={operations.reload} />)}</div>
        ) : (
          <div class="card"><Empty title="Nothing was done to many runs at once."><span>Select runs in <a class="link" href={href("runs")}>Runs</a>, or retry a group of <a class="link" href={href("dead-letters")}>dead letters</a>.</span></Empty></div>
        )}
      </Part>
    </div>
  );
}

function Row({ operation, isOpen, onChanged }: { operation: Operation; isOpen: boolean; onChanged: () => void }) {
  const { id, state } = operation;
  const title = `${operation.action} ${count(operation.count)} ${operation.count === 1 ? operation.on.slice(0, -1) : operation.on}`;
  const act = (verb: "go" | "stop") => void ask(inNamespace("operations", id, verb), { method: "POST", body: {} }).then(onChanged, (error: Error) => notify(error.message, true));
  return (
    <section class="gate" aria-label={title}>
      <div class="gate-head">
        <button type="button" class="gate-title" aria-expanded={isOpen} onClick={() => choose({ open: isOpen ? null : id, outcome: null })}>
          <Status status={STATES[state]}>{state}</Status><span class="wrap grow">{title}{operation.reason ? `: ${operation.reason}` : ""}</span>
        </button>
        <span class="gate-about">
          <span class="soft">{count(operation.done)} done{operation.refused ? `, ${count(operation.refused)} refused` : ""}</span>
          <span class="soft">{operation.by}, <Moment at={operation.at} /></span>
          {state === "counted" || state === "stopped" ? <Button isSmall needs="operate" onClick={() => act("go")}>Go</Button> : null}
          {state === "running" ? <Button isSmall kind="danger" needs="operate" onClick={() => act("stop")}>Stop</Button> : null}
        </span>
      </div>
      {isOpen ? <Outcomes operation={operation} /> : null}
    </section>
  );
}

function Outcomes({ operation }: { operation: Operation }) {
  const { outcome = "" } = place.value.query;
  const rows = useResource<{ items: Outcome[]; more: boolean }>(`${operation.id}|${outcome}|${operation.done}|${operation.refused}`, (abort) => get(inNamespace("operations", operation.id), { outcome, limit: 200 }, abort), true);
  return (
    <div class="gate-body">
      <span class="bar tone-running"><i style={{ width: `${(100 * (operation.done + operation.refused)) / Math.max(1, operation.count)}%` }} /></span>
      <div class="chips">
        {["", "waiting", "done", "refused"].map((each) => <button key={each} type="button" class="chip" aria-pressed={outcome === each} onClick={() => choose({ outcome: each || null })}>{each || "all"}</button>)}
        {operation.expires_at ? <span class="muted">expires <Moment at={operation.expires_at} /> if nobody lets it go</span> : null}
      </div>
      <Part of={rows.state.value}>
        {({ items, more }) => items.length ? (
          <div class="table-scroll" tabIndex={0}><table class="plain">
            <thead><tr><th>{operation.on === "runs" ? "Run" : "Schedule"}</th><th>Outcome</th><th>Why</th></tr></thead>
            <tbody>
              {items.map((each) => (
                <tr key={each.id}>
                  <td><a class="link" href={operation.on === "runs" ? runHref(each.id) : href(["schedules", each.id])}>{operation.on === "runs" ? each.id.slice(0, 8) : each.id}</a></td>
                  <td><Status status={OUTCOMES[each.outcome]}>{each.outcome}</Status></td><td class="wrap soft">{each.why}</td>
                </tr>
              ))}
            </tbody>
          </table>{more ? <p class="muted">and more</p> : null}</div>
        ) : <Empty title={outcome ? `None is ${outcome}.` : "It holds nothing."} />}
      </Part>
    </div>
  );
}
