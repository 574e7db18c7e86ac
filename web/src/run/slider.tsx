// The slider under all tabs: the state after any fact, in the address, so that a moment can be sent to somebody.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api/client";
import type { Fact, Page } from "../api/types";
import { useKeys } from "../app/keys";
import { useActions } from "../app/palette";
import { IconButton, notify, count } from "../ui/parts";
import { Moment, momentText, ms, shortText, zoneName } from "../ui/time";
import { chooseMoment, type RunModel } from "./model";

const SPEEDS = [1, 10, 100, 1000] as const;
const LONGEST = 1.2; // seconds that playing stays at one fact, however long nothing happened

async function firstFact(run: string, query: Record<string, string | number>): Promise<Fact | null> {
  let after = 0;
  for (;;) {
    const page = await get<Page<Fact> & { last: number }>(runPath(run, "facts"), { ...query, after, limit: 1, values: "none" });
    if (page.items[0]) return page.items[0];
    if (!page.more) return null;
    after = page.last;
  }
}

/** Go to the first fact that fits, such as the begin of a step. */
export async function jumpTo(run: string, query: Record<string, string | number>, what: string): Promise<void> {
  try {
    const fact = await firstFact(run, query);
    if (fact) chooseMoment(fact.number, false);
    else notify(`the run has no ${what}`);
  } catch (error) {
    notify((error as Error).message, true);
  }
}

/** Go to the last fact at or before a time, by halving the log. */
async function jumpToTime(run: string, head: number, wanted: number): Promise<void> {
  let low = 1;
  let high = head;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const page = await get<Page<Fact>>(runPath(run, "facts"), { after: middle - 1, limit: 1, values: "none" });
    if (ms(page.items[0]?.at) <= wanted) low = middle;
    else high = middle - 1;
  }
  chooseMoment(low, false);
}

export function Slider({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const at = model.at.value;
  const shown = model.shown.value;
  const number = at === null ? head : Math.min(at, head);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<number>(10);
  const [jumping, setJumping] = useState("");
  const timer = useRef(0);
  const go = (to: number, isDragging = true) => chooseMoment(to >= head ? null : Math.max(to, 1), isDragging);

  useEffect(() => {
    if (!isPlaying) return;
    if (number >= head) {
      setPlaying(false);
      return;
    }
    let isOver = false;
    void model.load(number + 1).then(() => {
      if (isOver) return;
      const gap = (ms(model.frames.frame(number + 1)?.at) - ms(model.frames.frame(number)?.at)) / 1000 / speed;
      timer.current = setTimeout(() => go(number + 1), Math.min(Math.max(gap, 0.016), LONGEST) * 1000) as unknown as number;
    }, () => setPlaying(false));
    return () => {
      isOver = true;
      clearTimeout(timer.current);
    };
  }, [isPlaying, number, speed, head]);

  const play = () => {
    if (!isPlaying && number >= head) chooseMoment(1);
    setPlaying(!isPlaying);
  };
  const failure = () => void jumpTo(model.id, { q: "failed" }, "failure");
  useKeys([
    { keys: "[", about: "one fact back", do: () => go(number - 1) },
    { keys: "]", about: "one fact forward", do: () => go(number + 1) },
    { keys: " ", about: "play the run", do: play },
  ]);
  useActions([
    { name: "Jump to the first failure", hint: "slider", do: failure },
    { name: "Go to now", hint: "slider", do: () => chooseMoment(null, false) },
  ], model.id);
  const jump = (event: Event) => {
    event.preventDefault();
    const text = jumping.trim();
    setJumping("");
    if (/^\d+$/.test(text)) return go(Number(text), false);
    const time = Date.parse(/^\d\d:\d\d/.test(text) && model.head.value ? `${momentText(ms(model.head.value.created_at), "UTC").slice(0, 10)}T${text}Z` : text);
    if (Number.isNaN(time)) void jumpTo(model.id, { step: text }, `step ${text}`);
    else void jumpToTime(model.id, head, time);
  };
  const fact = shown?.moment?.fact;
  return (
    <section class={`slider ${at === null ? "" : "past"}`} aria-label="Moments of the run">
      <div class="row buttons">
        <IconButton icon="first" label="To the first fact" isSmall onClick={() => go(1, false)} />
        <IconButton icon="back" label="One fact back" isSmall onClick={() => go(number - 1)} />
        <IconButton icon={isPlaying ? "pause" : "play"} label={isPlaying ? "Stop" : "Play"} isSmall onClick={play} pressed={isPlaying} />
        <IconButton icon="forward" label="One fact forward" isSmall onClick={() => go(number + 1)} />
        <IconButton icon="last" label="To now" isSmall onClick={() => chooseMoment(null, false)} />
        <button type="button" class="mini" aria-label={`Speed ${speed} times real time`} onClick={() => setSpeed(SPEEDS[(SPEEDS.indexOf(speed as 1) + 1) % SPEEDS.length] ?? 1)}>{speed}×</button>
      </div>
      <input type="range" min={1} max={Math.max(head, 1)} value={number} aria-label="After fact"
        aria-valuetext={`fact ${number} of ${head}`} style={{ "--part": `${head > 1 ? ((number - 1) / (head - 1)) * 100 : 100}%` }}
        onInput={(event) => go(Number(event.currentTarget.value))} />
      <div class="row says">
        {at === null ? <span class="muted">now, after {count(head)} facts</span> : (
          <><b>{count(number)}</b><span class="muted">of {count(head)}</span>{shown?.moment ? <Moment at={shown.moment.at} /> : null}<span class="cut">{fact?.text ?? fact?.type}</span></>
        )}
      </div>
      <form class="row jump" onSubmit={jump}>
        <button type="button" class="mini" onClick={failure}>first failure</button>
        <input class="field" value={jumping} placeholder="fact, step, time" aria-label={`Jump to a fact, a step, or a time (${zoneName.value})`} onInput={(event) => setJumping(event.currentTarget.value)} />
      </form>
    </section>
  );
}

/** Says that the past is shown, with the way back. */
export function PastNotice({ model }: { model: RunModel }) {
  const shown = model.shown.value;
  if (!shown?.moment) return null;
  return (
    <div class="past-notice" role="status">
      The run as it was after fact {count(shown.moment.number)}, at {shortText(ms(shown.moment.at))} {zoneName.value}
      <button type="button" class="btn small" onClick={() => chooseMoment(null, false)}>Go to now</button>
    </div>
  );
}
