// Who has started this run, and which runs it has started.
import { useState } from "preact/hooks";
import { get, inNamespace, runPath } from "../api/client";
import { useResource } from "../api/resource";
import type { Page, RunRow } from "../api/types";
import { href, runHref } from "../app/router";
import { Empty, Part } from "../ui/parts";
import { Status } from "../ui/status";
import { inZone, Moment, Took } from "../ui/time";
import type { RunModel } from "./model";

export function Family({ model }: { model: RunModel }) {
  const head = model.head.value;
  const children = useResource(`${model.id}|${head?.head ?? 0}`, (abort) => get<Page<RunRow>>(inNamespace("runs"), { parent: model.id, limit: 200, why: true }, abort), true);
  const parent = useResource(head?.parent ?? "", (abort) => get<RunRow>(runPath(head?.parent ?? ""), {}, abort));
  return (
    <div class="scroll grow pad-top" tabIndex={0} role="region" aria-label="Family">
      {head?.parent ? <Part of={parent.state.value} lines={1}>{(row) => <><h3 class="section">Started by</h3><Line row={row} /></>}</Part> : null}
      {head?.continued_by ? <p class="pad"><a class="link" href={runHref(head.continued_by)}>Continued by another run</a></p> : null}
      <Part of={children.state.value}>{(page) => page.items.length ? (
        <>
          <h3 class="section">Has started {page.items.length}{page.more ? "+" : ""} {page.items.length === 1 ? "run" : "runs"}{page.more ? <> · <a class="link" href={href("runs", { parent: model.id })}>all of them</a></> : null}</h3>
          {page.items.map((row) => <Branch key={row.id} row={row} depth={0} />)}
        </>
      ) : <Empty title="This run has started no other run." />}</Part>
    </div>
  );
}

function Line({ row }: { row: RunRow }) {
  return (
    <a class="family-row" href={runHref(row.id)}>
      <Status status={row.status} /><span class="cut strong">{row.name || row.id}</span><span class="cut muted">{row.workflow}</span>
      <Moment at={row.created_at} /><Took from={row.created_at} to={row.ended_at} /><span class="cut soft why-cell">{inZone(row.why ?? "")}</span>
    </a>
  );
}

/** A child with its own children, which are fetched when it is opened. */
function Branch({ row, depth }: { row: RunRow; depth: number }) {
  const [isOpen, setOpen] = useState(false);
  const below = useResource(isOpen ? row.id : "", (abort) => get<Page<RunRow>>(inNamespace("runs"), { parent: row.id, limit: 200, why: true }, abort));
  return (
    <>
      <div class="row branch" style={{ "--depth": String(depth) }}>
        <button type="button" class="mini" aria-expanded={isOpen} aria-label={`Children of ${row.name || row.id}`} onClick={() => setOpen(!isOpen)}>{isOpen ? "▾" : "▸"}</button>
        <Line row={row} />
      </div>
      {isOpen ? <Part of={below.state.value} lines={1}>{(page) => <>{page.items.length ? page.items.map((each) => <Branch key={each.id} row={each} depth={depth + 1} />) : <p class="muted branch" style={{ "--depth": String(depth + 1) }}>no children</p>}</>}</Part> : null}
    </>
  );
}
