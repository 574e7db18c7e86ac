// Moments and spans. The whole page has one zone, which stands next to the time; copying gives RFC 3339 in UTC.
import { computed, signal } from "@preact/signals";
import { preferences } from "../app/preferences";
import { tip } from "./tip";

export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
export const zone = computed(() => (preferences.value.zone === "local" ? LOCAL : preferences.value.zone));
export const zoneName = computed(() => {
  if (zone.value === "UTC") return "UTC";
  const parts = formatter(zone.value, { timeZoneName: "short" }).formatToParts(now.peek());
  return parts.find((each) => each.type === "timeZoneName")?.value ?? zone.value;
});

const formatters = new Map<string, Intl.DateTimeFormat>();
function formatter(timeZone: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = timeZone + JSON.stringify(options);
  let found = formatters.get(key);
  if (!found) formatters.set(key, (found = new Intl.DateTimeFormat("en-GB", { ...options, timeZone, hourCycle: "h23" })));
  return found;
}

function full(at: number, timeZone: string): Record<string, string> {
  const parts: Record<string, string> = {};
  const shape = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;
  for (const each of formatter(timeZone, shape).formatToParts(at)) parts[each.type] = each.value;
  return parts;
}

/** `2026-11-19 14:02:07` in a zone. */
export function momentText(at: number, timeZone: string = zone.value): string {
  const p = full(at, timeZone);
  return `${p["year"]}-${p["month"]}-${p["day"]} ${p["hour"]}:${p["minute"]}:${p["second"]}`;
}

/** The shortest text that is clear today: the time, the day and time, or the date. */
export function shortText(at: number, timeZone: string = zone.value): string {
  const text = momentText(at, timeZone);
  const today = momentText(now.peek(), timeZone);
  if (text.slice(0, 10) === today.slice(0, 10)) return text.slice(11);
  if (text.slice(0, 4) === today.slice(0, 4)) {
    return `${formatter(timeZone, { day: "numeric", month: "short" }).format(at)} ${text.slice(11, 16)}`;
  }
  return text.slice(0, 10);
}

/** Words of the server, in which moments are in UTC, with these moments in the zone of the page. */
export function inZone(text: string): string {
  if (zone.value === "UTC") return text;
  return text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, day: string, time: string) => `${shortText(Date.parse(`${day}T${time}Z`))} ${zoneName.value}`);
}

export function ms(stamp: string | null | undefined): number {
  return stamp ? Date.parse(stamp) : 0;
}

const UNITS: readonly [string, number][] = [["d", 86_400], ["h", 3_600], ["min", 60]];

/** A span in at most two units, as on the command line: 0.3 s, 12 s, 4 min 10 s, 2 h 5 min. */
export function span(seconds: number): string {
  if (seconds < 1) return `${Math.round(Math.max(seconds, 0) * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || parts.length) parts.push(`${count} ${unit}`);
  }
  return [...parts, `${left} s`].slice(0, 2).join(" ");
}

export function ago(at: number): string {
  const seconds = (now.value - at) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${span(Math.floor(seconds))} ago` : `in ${span(Math.ceil(-seconds))}`;
}

/** A moment. Hover shows local time, UTC and how long ago it is; copying it gives RFC 3339. */
export function Moment({ at, relative, className }: { at: string | null | undefined; relative?: boolean; className?: string }) {
  if (!at) return <span class="muted">-</span>;
  const value = Date.parse(at);
  const text = relative ? ago(value) : shortText(value);
  const hover = () => `${momentText(value)} ${zoneName.value}\n${momentText(value, "UTC")} UTC\n${ago(value)}`;
  return (
    <time dateTime={at} class={`moment ${className ?? ""}`} {...tip(hover)}
      onCopy={(event) => { event.clipboardData?.setData("text/plain", at); event.preventDefault(); }}>
      {text}
    </time>
  );
}

/** How long something took, or has taken until now. */
export function Took({ from, to }: { from: string | null; to: string | null }) {
  if (!from) return <span class="muted">-</span>;
  const end = to ? Date.parse(to) : Math.max(now.value, Date.parse(from));
  return <span>{span((end - Date.parse(from)) / 1000)}</span>;
}

