// Actions on many runs as operations: a dialog counts first, then lets exactly that go at a rate; a bar shows how far it is.
import { useEffect, useState } from "preact/hooks";
import { ask, get, inNamespace, post, Problem } from "../api/client";
import type { RunRow } from "../api/types";
import { href, runHref } from "../app/router";
import { Button, CommandLine, count, Dialog, Loading, notify } from "./parts";

export interface Operation {
  id: string;
  action: string;
  on: "runs" | "schedules";
  by: string;
  at: string;
  state: "counted" | "running" | "done" | "stopped";
  count: number;
  done: number;
  refused: number;
  waiting: number;
  rate: number;
  reason: string | null;
  expires_at: string | null;
}

interface Counted extends Operation {
  first: RunRow[];
  cannot: { count: number; why: Record<string, number>; first: { id: string; why: string }[] };
}

const SHOWN = 5; // of the runs that were counted
const LOOK = 500; // milliseconds between two looks at one that is under way
const RATES: readonly [number, string][] = [[1, "1 a second"], [10, "10 a second"], [100, "100 a second"], [1000, "1,000 a second"]];

export const runs = (number: number) => `${count(number)} ${number === 1 ? "run" : "runs"}`;

interface ManyProps {
  title: string;
  action: "pause" | "resume" | "cancel" | "retry" | "redrive";
  filter: Record<string, unknown>;
  about: string; // what happens to each
  command?: string;
  onClose: () => void;
  onGone: (operation: Operation) => void;
}

/** Nothing is changed before the button is pressed, and then exactly what was counted is. */
export function ManyDialog({ title, action, filter, about, command, onClose, onGone }: ManyProps) {
  const [counted, setCounted] = useState<Counted | null>(null);
  const [rate, setRate] = useState(10);
  const [problem, setProblem] = useState<Error | null>(null);
  const look = () => {
    setCounted(null);
    setProblem(null);
    post<Counted>(inNamespace("operations"), { action, filter }).then(setCounted, setProblem);
  };
  useEffect(look, []);
  const go = async () => {
    if (!counted) return;
    try {
      onGone(await post<Operation>(inNamespace("operations", counted.id, "go"), { rate }));
      onClose();
    } catch (error) {
      setProblem(error as Error);
    }
  };
  const number = counted?.count ?? 0;
  const hasExpired = problem instanceof Problem && problem.status === 404;
  return (
    <Dialog title={title} onClose={onClose} footer={
      <>
        <button type="button" class="btn quiet" onClick={onClose}>Close</button>
        {problem ? <button type="button" class="btn" onClick={look}>Count again</button> :
          <Button kind={action === "cancel" ? "danger" : "primary"} needs="operate" why={counted ? (number ? "" : "there is nothing to do") : "they are being counted"} onClick={() => void go()}>
            {counted ? `${action === "redrive" ? "Retry" : `${action[0]?.toUpperCase()}${action.slice(1)}`} ${runs(number)}` : "Counting"}
          </Button>}
      </>
    }>
      {counted ? (
        <>
          <p><b>{runs(number)}</b> {number === 1 ? "was" : "were"} counted. {number ? about : ""}</p>
          {counted.first.length ? <p class="soft wrap">{counted.first.slice(0, SHOWN).map((each, index) => <span key={each.id}>{index ? ", " : ""}<a class="link" href={runHref(each.id)}>{each.name || each.id.slice(0, 8)}</a></span>)}{number > SHOWN ? ` and ${count(number - SHOWN)} more` : ""}</p> : null}
          {counted.cannot.count ? <p class="muted">Left as they are: {Object.entries(counted.cannot.why).map(([why, each]) => (why.startsWith("it is ") ? `${count(each)} ${why.slice(6)}` : `${count(each)} (${why})`)).join(", ")}</p> : null}
          <label class="row"><span>At most</span>
            <select class="select" aria-label="How fast" value={String(rate)} onChange={(event) => setRate(Number(event.currentTarget.value))}>
              {RATES.map(([value, words]) => <option key={value} value={String(value)}>{words}</option>)}
            </select></label>
        </>
      ) : problem ? null : <Loading lines={2} />}
      {problem ? <p class="trouble" role="alert"><span class="wrap">{hasExpired ? "This count has expired." : problem.message}</span></p> : null}
      {command ? <CommandLine text={command} /> : null}
    </Dialog>
  );
}

/** How far an operation is. It goes on without this page. */
export function ManyProgress({ operation, onOver }: { operation: Operation; onOver: () => void }) {
  const [now, setNow] = useState(operation);
  const isRunning = now.state === "running";
  useEffect(() => {
    if (!isRunning) return;
    const abort = new AbortController();
    const timer = setInterval(() => {
      get<Operation>(inNamespace("operations", now.id), { limit: 1 }, abort.signal).then((found) => {
        setNow(found);
        if (found.state !== "running") onOver();
      }, () => undefined); // the next look finds it
    }, LOOK);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [now.id, isRunning]);
  const stop = () => void ask<Operation>(inNamespace("operations", now.id, "stop"), { method: "POST", body: {} }).then((answer) => setNow(answer.data), (error: Error) => notify(error.message, true));
  return (
    <div class="row many" role="status">
      <span class="bar grow tone-running"><i style={{ width: `${(100 * (now.done + now.refused)) / Math.max(1, now.count)}%` }} /></span>
      <span>{now.action}: {count(now.done)} of {count(now.count)} done{now.refused ? `, ${count(now.refused)} refused` : ""}{now.state === "stopped" ? ", stopped" : ""}</span>
      {isRunning ? <Button isSmall needs="operate" onClick={stop}>Stop</Button> : null}
      <a class="link" href={href("operations", { open: now.id })}>outcome of each</a>
    </div>
  );
}
