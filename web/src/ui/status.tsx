// A status is a shape, a word and a colour; none of them stands alone.
import type { ComponentChildren, JSX } from "preact";

export type Tone = "running" | "waiting" | "completed" | "failed" | "paused" | "quiet";

const TONES: Record<string, Tone> = {
  running: "running", ending: "running", issued: "running", entered: "running", active: "running",
  waiting: "waiting", queued: "waiting", gate: "waiting", retried: "waiting",
  completed: "completed", ok: "completed", continued: "completed",
  failed: "failed", stuck: "failed", broken: "failed",
  paused: "paused",
};

export function toneOf(status: string): Tone {
  return TONES[status] ?? "quiet";
}

const round = (inside: JSX.Element | null, dashed = false) => (
  <>
    <circle cx="7" cy="7" r="5.6" fill="none" stroke="currentColor" stroke-width="1.5" {...(dashed ? { "stroke-dasharray": "1.6 2.2" } : {})} />
    {inside}
  </>
);
const line = { fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round" } as const;
const paper = { ...line, stroke: "var(--surface)" } as const;

const SHAPES: Record<string, JSX.Element> = {
  running: (
    <>
      <circle cx="7" cy="7" r="5.6" fill="none" stroke="currentColor" stroke-width="1.5" opacity="0.3" />
      <path class="turning" d="M7 1.4a5.6 5.6 0 0 1 5.6 5.6" {...line} />
      <circle cx="7" cy="7" r="2.1" fill="currentColor" />
    </>
  ),
  waiting: round(<path d="M7 4.2V7l1.9 1.5" {...line} />),
  queued: round(<circle cx="7" cy="7" r="1.6" fill="currentColor" />),
  paused: round(<path d="M5.5 5v4M8.5 5v4" {...line} />),
  completed: <><circle cx="7" cy="7" r="6.2" fill="currentColor" /><path d="M4.4 7.2l1.9 1.8 3.4-3.8" {...paper} /></>,
  failed: <><path d="M7 .9 13.1 7 7 13.1.9 7z" fill="currentColor" stroke="currentColor" stroke-linejoin="round" /><path d="M5.3 5.3l3.4 3.4M8.7 5.3 5.3 8.7" {...paper} /></>,
  cancelled: round(<path d="M3.4 10.6l7.2-7.2" {...line} />),
  skipped: round(<path d="M4.8 7h4.4" {...line} />),
  pending: round(null, true),
  continued: <><circle cx="7" cy="7" r="6.2" fill="currentColor" /><path d="M4 7h5.4M7.2 4.6 9.6 7 7.2 9.4" {...paper} /></>,
};
const SAME_SHAPE: Record<string, string> = {
  ending: "running", issued: "running", entered: "running", stopped: "cancelled", dropped: "cancelled", bypassed: "skipped",
  ok: "completed", stuck: "failed", dead: "skipped", unreached: "pending",
};

export const STATUS_SHAPES: readonly string[] = [...Object.keys(SHAPES), ...Object.keys(SAME_SHAPE)];

/** The shape alone, for a place where the word stands next to it. */
export function shapeOf(status: string): JSX.Element {
  return SHAPES[SAME_SHAPE[status] ?? status] ?? (SHAPES["pending"] as JSX.Element);
}

export function Glyph({ status }: { status: string }) {
  return <svg class={`glyph tone-${toneOf(status)}`} viewBox="0 0 14 14" aria-hidden="true">{shapeOf(status)}</svg>;
}

export function Status({ status, children }: { status: string; children?: ComponentChildren }) {
  return (
    <span class={`status tone-${toneOf(status)}`}>
      <svg viewBox="0 0 14 14" aria-hidden="true">{shapeOf(status)}</svg>
      <span class="cut">{children ?? status}</span>
    </span>
  );
}
