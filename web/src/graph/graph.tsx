// The graph of a run or of a plan: shapes and words for what each step does and how it stands, arcs for what was taken.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { StepRow } from "../api/types";
import { useKeys } from "../app/keys";
import { count, Empty, IconButton, Loading } from "../ui/parts";
import { shapeOf, toneOf } from "../ui/status";
import { hideTip, showTip } from "../ui/tip";
import { around, type Edge, FOLDS_ABOVE, foldedGraph, type Node, type RunGraph, SEARCH_FIRST_ABOVE } from "./fold";
import { layoutOf } from "./layout";
import type { LayoutReply } from "./layout.worker";

const MOST_AROUND = 300;
const NODE = { height: 46, least: 132, most: 420 };
const NAME = "550 12.5px";
const WORD = "11px"; // the fonts of `.node .name` and `.node .word`
const USUAL = "completed, visit 2"; // the longest that usually stands behind the kind of a step

interface GraphProps {
  graph: RunGraph;
  id: string; // of the plan: layouts are kept by it
  rows?: ReadonlyMap<string, StepRow>;
  changed?: ReadonlySet<string>;
  chosen: string;
  onChoose: (step: string | null) => void;
  onOpen?: (step: string) => void;
  statusOf?: (row: StepRow) => string;
}

interface View {
  x: number;
  y: number;
  scale: number;
}

const pen = document.createElement("canvas").getContext("2d");
const MOST_LENGTHS = 5000; // that are kept: numbers change all the time
const lengths = new Map<string, number>();

/** How wide a text is in the fonts of the page. */
function lengthOf(text: string, font: string): number {
  const key = `${font} ${text}`;
  let length = lengths.get(key);
  if (length === undefined) {
    if (pen) pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
    length = pen?.measureText(text).width ?? text.length * 8;
    if (lengths.size > MOST_LENGTHS) lengths.clear();
    lengths.set(key, length);
  }
  return length;
}

const isPointed = (kind: string) => kind === "gate" || kind === "wait";
const leftOf = (kind: string) => (isPointed(kind) ? 37 : 31);
const roomOf = (width: number, kind: string) => width - leftOf(kind) - (isPointed(kind) ? 21 : 11);

function nameOf(node: Node): string {
  return node.steps.length > 1 ? `${node.steps[0]} … ${node.steps.length} steps` : (node.steps[0] ?? "");
}

/** As wide as its text, up to a limit. It does not depend on how the step stands, so that nothing moves. */
function widthOf(node: Node, kind: string): number {
  const text = Math.max(lengthOf(nameOf(node), NAME), lengthOf(`${kind} · ${USUAL}`, WORD));
  return Math.ceil(Math.min(Math.max(text - roomOf(0, kind), NODE.least), NODE.most));
}

/** A text that fits: names lose their middle, for their ends differ; words lose their end. */
function shortened(text: string, room: number, font: string): string {
  let kept = text.length;
  let short = text;
  while (kept > 2 && lengthOf(short, font) > room) {
    kept -= 1;
    short = font === WORD ? `${text.slice(0, kept)}…` : `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(-Math.floor(kept / 2))}`;
  }
  return short;
}

/** A smooth line through the points of the layout. */
function pathOf(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${first.x},${first.y}`;
  rest.forEach((point, index) => {
    const following = rest[index + 1];
    path += following ? `Q${point.x},${point.y} ${(point.x + following.x) / 2},${(point.y + following.y) / 2}` : `L${point.x},${point.y}`;
  });
  return path;
}

const MARK_WORDS: Record<string, string> = { taken: "taken", dead: "not taken, and will not be", open: "not yet decided" };

export function GraphView({ graph, id, rows, changed, chosen, onChoose, onOpen, statusOf }: GraphProps) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [laid, setLaid] = useState<{ reply: LayoutReply; nodes: Node[]; edges: Edge[]; key: string } | null>(null);
  const [view, setView] = useState<View | null>(null);
  const [found, setFound] = useState("");
  const box = useRef<SVGSVGElement>(null);
  const isHuge = graph.steps.length > SEARCH_FIRST_ABOVE;
  const centre = isHuge ? chosen || found : "";
  const part = useMemo(() => (isHuge ? (centre ? around(graph, centre, MOST_AROUND) : null) : graph), [graph, centre]);
  const folds = graph.steps.length > FOLDS_ABOVE;
  const kinds = useMemo(() => new Map(graph.steps.map((each) => [each.step, each])), [graph]);
  const key = `${id}|${centre}|${folds ? [...opened].sort().join(",") : ""}`;

  useEffect(() => {
    if (!part) return;
    let isOver = false;
    const { nodes, edges } = foldedGraph(part, folds, opened);
    void layoutOf(key, { nodes: nodes.map((each) => ({ id: each.id, width: widthOf(each, kinds.get(each.id)?.kind ?? ""), height: NODE.height })), edges: edges.map(({ from, to }) => ({ from, to })) }).then((reply) => {
      if (!isOver) setLaid({ reply, nodes, edges, key });
    });
    return () => { isOver = true; };
  }, [key, part === null]);

  const fit = () => {
    const size = box.current?.getBoundingClientRect();
    if (!size || !laid) return;
    const scale = Math.min(size.width / Math.max(laid.reply.width, 1), size.height / Math.max(laid.reply.height, 1), 1.15);
    setView({ scale, x: (size.width - laid.reply.width * scale) / 2, y: Math.max((size.height - laid.reply.height * scale) / 2, 8) });
  };
  // A graph that would become too small to read begins at its top, or at the step that is chosen.
  useLayoutEffect(() => {
    const size = box.current?.getBoundingClientRect();
    if (!laid || !size) return;
    const scale = Math.min(size.width / laid.reply.width, size.height / laid.reply.height, 1.15);
    if (scale >= 0.55) return fit();
    const at = laid.reply.nodes[chosen] ?? laid.reply.nodes[graph.entry];
    const close = Math.min(Math.max(size.width / laid.reply.width, 0.62), 1);
    setView({ scale: close, x: size.width / 2 - (at?.x ?? laid.reply.width / 2) * close, y: chosen && at ? size.height / 2 - at.y * close : 12 });
  }, [laid?.key]);

  const zoom = (by: number, x?: number, y?: number) => {
    const size = box.current?.getBoundingClientRect();
    if (!size) return;
    setView((before) => {
      const now = before ?? { x: 0, y: 0, scale: 1 };
      const scale = Math.min(Math.max(now.scale * by, 0.05), 3);
      const [cx, cy] = [x ?? size.width / 2, y ?? size.height / 2];
      return { scale, x: cx - ((cx - now.x) * scale) / now.scale, y: cy - ((cy - now.y) * scale) / now.scale };
    });
  };
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const size = element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 180), event.clientX - size.left, event.clientY - size.top);
      else setView((now) => now && { ...now, x: now.x - event.deltaX, y: now.y - event.deltaY });
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [laid === null]);

  const drag = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);
  const neighbour = (forwards: boolean) => {
    if (!laid) return;
    const now = chosen || graph.entry;
    const arc = graph.arcs.find((each) => (forwards ? each.from : each.to) === now);
    if (!chosen) onChoose(graph.entry);
    else if (arc) onChoose(forwards ? arc.to : arc.from);
  };
  const sideways = (by: number) => {
    const here = laid?.reply.nodes[chosen];
    if (!laid || !here) return;
    const same = laid.nodes.map((each) => ({ id: each.id, at: laid.reply.nodes[each.id] })).filter((each) => each.at && Math.abs(each.at.y - here.y) < 10).sort((a, b) => (a.at?.x ?? 0) - (b.at?.x ?? 0));
    const next = same[same.findIndex((each) => each.id === chosen) + by];
    if (next) onChoose(next.id);
  };
  useKeys([
    { keys: "ArrowDown", about: "next step of the graph", do: () => neighbour(true) },
    { keys: "ArrowUp", about: "step before", do: () => neighbour(false) },
    { keys: "ArrowRight", about: "step to the right", do: () => sideways(1) },
    { keys: "ArrowLeft", about: "step to the left", do: () => sideways(-1) },
  ]);
  if (isHuge && !centre) return (
    <Empty title={`${count(graph.steps.length)} steps are too many for one picture.`}>
      <p>Choose a step; the graph around it is drawn.</p>
      <input class="field" list="graph-steps" aria-label="Step" placeholder="step" onChange={(event) => { if (kinds.has(event.currentTarget.value)) { setFound(event.currentTarget.value); onChoose(event.currentTarget.value); } }} />
      <datalist id="graph-steps">{graph.steps.slice(0, 500).map((each) => <option key={each.step} value={each.step} />)}</datalist>
    </Empty>
  );
  if (!laid) return <Loading />;
  return (
    <div class="graph-box">
      <div class="graph-tools row">
        <IconButton icon="plus" label="Zoom in" isSmall onClick={() => zoom(1.25)} />
        <IconButton icon="minus" label="Zoom out" isSmall onClick={() => zoom(0.8)} />
        <IconButton icon="fit" label="Show all of it" isSmall onClick={fit} />
        {folds ? <span class="muted">{count(graph.steps.length)} steps; chains are folded</span> : null}
        {folds && opened.size ? <button type="button" class="mini" onClick={() => setOpened(new Set())}>fold again</button> : null}
      </div>
      <svg ref={box} class="graph" role="group" aria-label={`Graph of ${graph.workflow}; the list of steps says the same`}
        onPointerDown={(event) => { if (view && event.button === 0) { drag.current = { x: event.clientX, y: event.clientY, view, moved: false }; } }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) return;
          if (Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 4) from.moved = true;
          if (from.moved) setView({ ...from.view, x: from.view.x + event.clientX - from.x, y: from.view.y + event.clientY - from.y });
        }}
        onPointerUp={() => { setTimeout(() => { drag.current = null; }); }} onPointerLeave={() => { drag.current = null; }}
        onClick={(event) => { if (event.target === event.currentTarget && !drag.current?.moved) onChoose(null); }}>
        <defs>
          {["taken", "dead", "open"].map((mark) => <marker key={mark} id={`arrow-${mark}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class={`arrow ${mark}`} d="M0.5 0.8 7 4 0.5 7.2z" /></marker>)}
        </defs>
        <g transform={view ? `translate(${view.x},${view.y}) scale(${view.scale})` : ""}>
          {laid.edges.map((edge, index) => <EdgeLine key={index} edge={edge} graph={part ?? graph} points={laid.reply.edges[index] ?? []} />)}
          {laid.nodes.map((node) => {
            const at = laid.reply.nodes[node.id];
            if (!at) return null;
            const open = node.steps.length > 1 ? () => setOpened(new Set([...opened, node.id])) : null;
            return <NodeBox key={node.id} node={node} x={at.x} y={at.y} kind={kinds.get(node.id)?.kind ?? ""} isLoop={kinds.get(node.id)?.is_loop ?? false} row={rows?.get(node.id)} rows={rows} isChosen={node.steps.includes(chosen)} isChanged={node.steps.some((each) => changed?.has(each))} statusOf={statusOf}
              onClick={() => { if (!drag.current?.moved) { if (open) open(); else onChoose(node.id === chosen ? null : node.id); } }} onOpen={onOpen} />;
          })}
        </g>
      </svg>
    </div>
  );
}

function EdgeLine({ edge, graph, points }: { edge: Edge; graph: RunGraph; points: { x: number; y: number }[] }) {
  const all = edge.arcs.map((place) => ({ arc: graph.arcs[place], mark: graph.marks?.[place] ?? "open" }));
  const mark = all.some((each) => each.mark === "taken") ? "taken" : all.every((each) => each.mark === "dead") ? "dead" : "open";
  const says = all.map(({ arc, mark: one }) => `${arc?.from} → ${arc?.to}${arc && arc.on !== "success" ? ` on ${arc.on}` : ""}\n${arc?.when ?? (arc?.has_condition ? "has a condition" : "no condition")}\n${graph.marks ? MARK_WORDS[one] : ""}`).join("\n\n");
  const middle = points[Math.floor(points.length / 2)];
  const first = all[0]?.arc;
  const label = all.length === 1 && first ? (first.on !== "success" ? first.on : first.has_condition ? "if" : "") : "";
  const path = pathOf(points);
  return (
    <g class={`edge ${mark} ${first?.is_back ? "back" : ""} ${graph.marks ? "" : "plain"}`} onMouseMove={(event) => showTip(says, event.clientX + 10, event.clientY + 12)} onMouseLeave={hideTip}>
      <path class="hit" d={path} />
      <path class="line" d={path} marker-end={`url(#arrow-${mark})`} />
      {label && middle ? <g transform={`translate(${middle.x},${middle.y})`}><rect class="edge-label" x={-label.length * 3.2 - 5} y={-8} width={label.length * 6.4 + 10} height={16} rx={8} /><text text-anchor="middle" y={3.5}>{label}</text></g> : null}
    </g>
  );
}

interface NodeProps {
  node: Node;
  x: number;
  y: number;
  kind: string;
  isLoop: boolean;
  row: StepRow | undefined;
  rows: ReadonlyMap<string, StepRow> | undefined;
  isChosen: boolean;
  isChanged: boolean;
  statusOf: ((row: StepRow) => string) | undefined;
  onClick: () => void;
  onOpen: ((step: string) => void) | undefined;
}

/** How far a folded chain is: the worst of its steps gives the colour. */
function worst(statuses: string[]): string {
  return ["failed", "running", "waiting", "paused"].find((each) => statuses.includes(each)) ?? (statuses.every((each) => each === "completed") ? "completed" : statuses.includes("completed") ? "running" : (statuses[0] ?? "pending"));
}

function NodeBox({ node, x, y, kind, isLoop, row, rows, isChosen, isChanged, statusOf, onClick, onOpen }: NodeProps) {
  const width = widthOf(node, kind);
  const isFolded = node.steps.length > 1;
  const shown = (each: StepRow | undefined) => (each ? (statusOf ? statusOf(each) : each.status) : "pending");
  const status = isFolded ? worst(node.steps.map((each) => shown(rows?.get(each)))) : shown(row);
  const done = isFolded ? node.steps.filter((each) => shown(rows?.get(each)) === "completed").length : 0;
  const word = !rows ? "" : isFolded ? `${done} of ${node.steps.length} done` : row?.count ? `${count(row.done + row.failed + row.skipped + row.cancelled)} of ${count(row.count)}${row.failed ? `, ${count(row.failed)} failed` : ""}` : `${status}${(row?.visits ?? 0) > 1 ? `, visit ${row?.visits}` : ""}${(row?.attempts ?? 0) > Math.max(row?.visits ?? 0, 1) ? `, try ${row?.attempts}` : ""}`;
  const name = nameOf(node);
  const shownName = shortened(name, roomOf(width, kind), NAME);
  const shownWord = shortened(isFolded ? word : `${kind}${word ? ` · ${word}` : ""}`, roomOf(width, kind), WORD);
  const label = `${shownName} ${shownWord}${shownName === name ? "" : `: ${name}, ${word}`}`;
  const hover = `${isFolded ? node.steps.slice(0, 12).join("\n") : name}\n${word}${row?.reason ? `\n${row.reason.text}` : ""}${row?.error ? `\n${row.error.kind}: ${row.error.message ?? ""}` : ""}`;
  const total = Math.max(row?.count ?? 0, 1);
  const inner = width - 22;
  const parts = row?.count ? ([[row.done, "completed"], [row.failed, "failed"], [row.open, "running"], [row.skipped + row.cancelled, "quiet"]] as const) : [];
  let filled = 0;
  return (
    <g class={`node tone-${toneOf(status)} is-${status} ${isChosen ? "chosen" : ""} ${isChanged ? "changed" : ""} shape-${shapeName(kind, isFolded)}`} transform={`translate(${x - width / 2},${y - NODE.height / 2})`} role="button" tabIndex={0} aria-label={label} aria-pressed={isChosen}
      onClick={(event) => { event.stopPropagation(); onClick(); }} onDblClick={() => onOpen?.(node.id)} onKeyDown={(event) => { if (event.key === "Enter") onClick(); }}
      onMouseMove={(event) => showTip(hover, event.clientX + 10, event.clientY + 14)} onMouseLeave={hideTip}>
      {isLoop || isFolded ? <rect class="behind" x={4} y={4} width={width} height={NODE.height} rx={6} /> : null}
      {kind === "gate" ? <path class="box" d={`M12,0H${width - 12}L${width},${NODE.height / 2} ${width - 12},${NODE.height}H12L0,${NODE.height / 2}z`} /> : <rect class="box" width={width} height={NODE.height} rx={kind === "wait" ? NODE.height / 2 : 6} />}
      {kind === "child" ? <path class="double" d={`M5,0V${NODE.height}M${width - 5},0V${NODE.height}`} /> : null}
      <svg x={leftOf(kind) - 20} y={8} width={14} height={14} viewBox="0 0 14 14" class="glyph" aria-hidden="true">{shapeOf(rows ? status : "pending")}</svg>
      <text class="name" x={leftOf(kind)} y={19}>{shownName}</text>{" "}
      <text class="word" x={leftOf(kind)} y={35}>{shownWord}</text>
      {parts.length ? <g transform={`translate(11,${NODE.height - 6})`}><rect class="strip-back" width={inner} height={3} rx={1.5} />{parts.map(([number, tone]) => {
        const from = filled;
        const size = (number / total) * inner;
        filled += size;
        return number ? <rect key={tone} class={`strip-part tone-${tone}`} x={from} width={size} height={3} /> : null;
      })}</g> : null}
    </g>
  );
}

export function shapeName(kind: string, isFolded: boolean): string {
  return isFolded ? "folded" : kind === "gate" || kind === "wait" || kind === "child" ? kind : "step";
}

