// What the tabs of a run share: the run as it is now, and as it was at the chosen moment.
import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type Answer, ask, get, runPath } from "../api/client";
import { subscribe } from "../api/stream";
import type { RunHead, StepRow } from "../api/types";
import { choose, place } from "../app/router";
import { Frames, type Moment, type Piece, WINDOW } from "./frames";

export interface Shown {
  status: string;
  rows: StepRow[];
  changed: ReadonlySet<string>;
  at: number | null; // the number of the chosen fact; null: now
  moment: Moment<StepRow> | null;
}

export interface RunModel {
  id: string;
  head: Signal<RunHead | null>;
  tag: Signal<string>;
  error: Signal<Error | null>;
  isGone: Signal<boolean>;
  at: ReadonlySignal<number | null>;
  shown: ReadonlySignal<Shown | null>;
  frames: Frames<StepRow>;
  /** Fetch the frames that a moment needs. */
  load: (number: number) => Promise<Moment<StepRow> | null>;
  refresh: () => Promise<void>;
  stop: () => void;
}

export function tagOf(head: RunHead): string {
  return `"${head.plan.slice(0, 16)}-${head.head}"`;
}

export function openRun(id: string): RunModel {
  const head = signal<RunHead | null>(null);
  const tag = signal("");
  const error = signal<Error | null>(null);
  const isGone = signal(false);
  const frames = new Frames<StepRow>();
  const version = signal(0); // grows with the frames that are here
  const at = computed(() => {
    const number = Number(place.value.query["at"]);
    return Number.isInteger(number) && number > 0 ? number : null;
  });
  const shown = computed<Shown | null>(() => {
    version.value;
    const now = head.value;
    if (!now) return null;
    if (at.value === null) return { status: now.status, rows: now.steps, changed: NONE, at: null, moment: null };
    const moment = frames.at(Math.min(at.value, now.head));
    return moment ? { status: moment.status, rows: moment.rows, changed: moment.changed, at: moment.number, moment } : latest;
  });
  let latest: Shown | null = null; // what was shown stays until the frames are here
  const keepLatest = effect(() => {
    latest = shown.value;
  });

  const waiting = new Map<number, Promise<void>>();
  const load = async (number: number): Promise<Moment<StepRow> | null> => {
    for (let after = frames.missing(number); after !== null; after = frames.missing(number)) {
      const begin = after;
      let fetching = waiting.get(begin);
      if (!fetching) {
        const limit = WINDOW - (begin % WINDOW);
        fetching = get<Omit<Piece<StepRow>, "after">>(runPath(id, "frames"), { after: begin, limit }).then((found) => {
          if (!found.frames.length) throw new Error(`the run has no fact ${number}`);
          frames.add({ after: begin, ...found });
          version.value++;
        }).finally(() => waiting.delete(begin));
        waiting.set(begin, fetching);
      }
      await fetching;
    }
    return frames.at(number);
  };
  const fetching = effect(() => {
    if (at.value !== null && head.value) void load(Math.min(at.value, head.value.head)).catch((problem: Error) => { error.value = problem; });
  });

  const take = (answer: Answer<RunHead>) => {
    if (head.value && answer.data.head < head.value.head) return;
    head.value = answer.data;
    tag.value = answer.tag || tagOf(answer.data);
    error.value = null;
  };
  let unsubscribe = () => {};
  let again = 0;
  const refresh = async () => {
    clearTimeout(again);
    try {
      take(await ask<RunHead>(runPath(id)));
      unsubscribe();
      unsubscribe = subscribe(`run:${id}`, (event) => {
        if (event.name === "gone") isGone.value = true;
        else if (event.name === "run") take({ data: merged(head.value, event.data as RunHead & { all?: boolean }), tag: "", text: "" });
        else if (event.name === "reset") void refresh();
      });
    } catch (problem) {
      error.value = problem as Error;
      again = setTimeout(() => void refresh(), 2500) as unknown as number;
    }
  };
  void refresh();
  return { id, head, tag, error, isGone, at, shown, frames, load, refresh, stop: () => { unsubscribe(); fetching(); keepLatest(); clearTimeout(again); } };
}

const NONE: ReadonlySet<string> = new Set();

/** An event has all rows, or those that changed. */
function merged(before: RunHead | null, event: RunHead & { all?: boolean }): RunHead {
  if (event.all !== false || !before) return event;
  const changed = new Map(event.steps.map((each) => [each.step, each]));
  return { ...event, steps: before.steps.map((each) => changed.get(each.step) ?? each) };
}

/** Choose a moment; null is now. Dragging replaces the address. */
export function chooseMoment(number: number | null, isDragging = true): void {
  choose({ at: number }, isDragging);
}
