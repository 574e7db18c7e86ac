// The facts of a run in words, grouped by turn, with the raw fact of the one that is chosen.
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { ask, get, runPath } from "../api/client";
import { useResource } from "../api/resource";
import type { Fact, Page } from "../api/types";
import { choose, place } from "../app/router";
import { useKeys } from "../app/keys";
import { Marked } from "../ui/ansi";
import { Icon } from "../ui/icons";
import { Json } from "../ui/json";
import { Chip, count, Empty, Part, Trouble } from "../ui/parts";
import { Moment } from "../ui/time";
import { VirtualList } from "../ui/virtual";
import { chooseMoment, type RunModel } from "./model";

const WINDOW = 200;
type FactPage = Page<Fact> & { last: number };

export const FACT_KINDS = ["run_started", "step_issued", "step_settled", "routed", "fan_out_entered", "items_issued", "items_settled", "items_retried", "items_given_up", "gate_decided", "signal_received", "signal_taken", "child_ended", "call_settled", "run_paused", "run_resumed", "cancel_asked", "run_ending", "run_ended", "run_reopened", "run_migrated", "budget_exceeded"];

export function History({ model }: { model: RunModel }) {
  const { fq = "", fkind = "", fstep = "", fact = "" } = place.value.query;
  const head = model.head.value?.head ?? 0;
  const at = model.at.value;
  const isFiltered = Boolean(fq || fkind || fstep);
  const [typed, setTyped] = useState(fq);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<Error | null>(null);
  // Without a filter the list is the log itself: any part of it can be fetched. With one it grows from its beginning.
  const store = useMemo(() => ({ windows: new Map<number, Fact[] | null>(), found: [] as Fact[], after: 0, more: true, isFetching: false }), [fq, fkind, fstep, model.id]);

  const fetchWindow = async (index: number) => {
    const known = store.windows.get(index);
    if (known !== undefined && (known === null || known.length === WINDOW || index * WINDOW + known.length >= head)) return;
    store.windows.set(index, known ?? null);
    try {
      const items: Fact[] = [];
      for (let after = index * WINDOW; items.length < WINDOW; ) {
        const page = await get<FactPage>(runPath(model.id, "facts"), { after, limit: WINDOW - items.length, values: "none" });
        items.push(...page.items);
        if (!page.items.length || !page.more) break;
        after = page.last;
      }
      store.windows.set(index, items);
      setError(null);
    } catch (problem) {
      store.windows.delete(index);
      setError(problem as Error);
    }
    redraw(null);
  };
  const fetchMore = async () => {
    if (store.isFetching || !store.more) return;
    store.isFetching = true;
    try {
      const page = await get<FactPage>(runPath(model.id, "facts"), { q: fq, kind: fkind, step: fstep, after: store.after, limit: WINDOW, values: "none" });
      store.found.push(...page.items);
      store.after = page.last;
      store.more = page.more;
      setError(null);
    } catch (problem) {
      store.more = false;
      setError(problem as Error);
    }
    store.isFetching = false;
    redraw(null);
  };
  useEffect(() => { if (isFiltered) void fetchMore(); }, [store]);
  const most = at ?? head;
  const number = isFiltered ? store.found.length : most;
  const factAt = (index: number): Fact | null => isFiltered ? (store.found[index] ?? null) : (store.windows.get(Math.floor(index / WINDOW))?.[index % WINDOW] ?? null);
  const ranged = (first: number, last: number) => {
    if (isFiltered) {
      if (last >= store.found.length - 20) void fetchMore();
      return;
    }
    for (let index = Math.floor(first / WINDOW); index <= Math.floor(last / WINDOW); index++) void fetchWindow(index);
  };
  useEffect(() => { if (!isFiltered && head) void fetchWindow(Math.floor((head - 1) / WINDOW)); }, [head]);
  const chosen = Number(fact) || null;
  const reveal = useMemo(() => ({ index: isFiltered ? -1 : (chosen ?? most) - 1, align: "auto" as const }), [at, store, chosen === null ? head === 0 : chosen]);
  const move = (by: number) => choose({ fact: Math.max(1, Math.min(most, (chosen ?? most) + by)) }, true);
  useKeys([
    { keys: "j", about: "next row", do: () => move(1) },
    { keys: "k", about: "previous row", do: () => move(-1) },
    { keys: "/", about: "filter", do: () => field.current?.focus() },
  ]);
  return (
    <div class={`sides ${chosen ? "with-detail" : ""}`} onKeyDown={(event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== field.current) {
        event.preventDefault();
        field.current?.focus();
      }
    }}>
      <div class="col split-main">
        <div class="row toolbar">
          <form onSubmit={(event) => { event.preventDefault(); choose({ fq: typed }); }}>
            <input ref={field} class="field" type="search" placeholder="Search the facts" aria-label="Search the facts" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </form>
          <select class="select" aria-label="Kind of fact" value={fkind} onChange={(event) => choose({ fkind: event.currentTarget.value })}>
            <option value="">every kind</option>
            {FACT_KINDS.map((each) => <option key={each} value={each}>{each.replaceAll("_", " ")}</option>)}
          </select>
          {fq ? <Chip name="text" value={fq} onRemove={() => { setTyped(""); choose({ fq: null }); }} /> : null}
          {fkind ? <Chip name="kind" value={fkind} onRemove={() => choose({ fkind: null })} /> : null}
          {fstep ? <Chip name="step" value={fstep} onRemove={() => choose({ fstep: null })} /> : null}
          <span class="grow" />
          <span class="muted">{isFiltered ? `${count(store.found.length)}${store.more ? "+" : ""} of ` : ""}{count(most)} facts</span>
        </div>
        {error ? <Trouble error={error} /> : null}
        {number ? (
          <VirtualList className="grow fact-list" label="Facts" count={number} rowHeight={26} reveal={reveal} onRange={ranged} row={(index) => {
            const each = factAt(index);
            if (!each) return <div class="fact-row muted"><span class="nr">{isFiltered ? "" : index + 1}</span><span>…</span></div>;
            const before = factAt(index - 1);
            const isTurn = before?.at !== each.at;
            return (
              <div class={`fact-row ${isTurn ? "turn" : ""} ${each.number === chosen ? "chosen" : ""} ${each.number === at ? "changed" : ""}`} onClick={() => choose({ fact: each.number === chosen ? null : each.number }, true)}>
                <button type="button" class="plain-button nr" aria-label={`Fact ${each.number}`} aria-pressed={each.number === chosen}>{each.number}</button>
                <span class="when">{isTurn ? <Moment at={each.at} /> : null}</span>
                <span class={`kind k-${each.type}`}>{each.type.replaceAll("_", " ")}</span>
                <span class="cut">{fq ? <Marked text={each.text ?? each.step ?? ""} mark={fq} /> : (each.text ?? each.step ?? "")}</span>
              </div>
            );
          }} />
        ) : store.isFetching || (isFiltered && store.more) ? <p class="muted pad">Looking …</p> : <Empty title="No fact fits."><button type="button" class="btn small" onClick={() => { setTyped(""); choose({ fq: null, fkind: null, fstep: null }); }}>Lift the filters</button></Empty>}
      </div>
      {chosen ? <FactDetail run={model.id} number={chosen} /> : null}
    </div>
  );
}

function FactDetail({ run, number }: { run: string; number: number }) {
  const found = useResource(`${run}|${number}`, (abort) => ask<Fact>(runPath(run, "facts", number), { signal: abort }).then((answer) => ({ fact: answer.data, text: answer.text })), true);
  return (
    <aside class="detail" aria-label={`Fact ${number}`}>
      <header class="row">
        <h2 class="grow cut">Fact {count(number)}</h2>
        <button type="button" class="btn small" onClick={() => chooseMoment(number, false)}>State after this</button>
        <button type="button" class="btn quiet small icon" aria-label="Close the fact" onClick={() => choose({ fact: null }, true)}><Icon name="close" /></button>
      </header>
      <Part of={found.state.value}>{({ fact, text }) => (
        <div class="detail-body">
          <p class="wrap">{fact.text}</p>
          <p class="muted"><Moment at={fact.at} /> · {fact.type.replaceAll("_", " ")}{fact.step ? <> · <button type="button" class="mini" onClick={() => choose({ fstep: fact.step ?? null, fact: null })}>{fact.step}</button></> : null}</p>
          <Json text={text} label="The fact" />
        </div>
      )}</Part>
    </aside>
  );
}
