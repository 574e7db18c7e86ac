// The drawings of the navigation and of buttons.
import type { JSX } from "preact";

const PATHS: Record<string, string> = {
  now: "M2 8h3l2-5 3 10 2-5h2",
  runs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  gates: "M8 2v5M8 14v-2.5M3 7h10v4.5H3z",
  dead: "M8 2.2 14.2 13H1.8zM8 6.5v3M8 11.2v.3",
  workflows: "M3 3h4v4H3zM9 9h4v4H9zM5 7v4h4",
  schedules: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5",
  workers: "M3 5h10v7H3zM6 5V3h4v2M3 8.5h10",
  operations: "M3 3.5h10M3 8h10M3 12.5h10M5.5 2v3M10 6.5v3M6.5 11v3",
  settings: "M3 4.5h6M12 4.5h1M3 11.5h1M7 11.5h6M10.5 3v3M5.5 10v3",
  api: "M5.5 4 2 8l3.5 4M10.5 4 14 8l-3.5 4",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 13.5 13.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  play: "M5 3.2 12.5 8 5 12.8z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  back: "M10 3 5 8l5 5",
  forward: "M6 3l5 5-5 5",
  first: "M11.5 3 7 8l4.5 5M4.5 3v10",
  last: "M4.5 3 9 8l-4.5 5M11.5 3v10",
  alert: "M8 2.2 14.2 13H1.8zM8 6.5v3M8 11.2v.3",
  open: "M6 3H3v10h10v-3M9 3h4v4M13 3 7.5 8.5",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  down: "M3.5 6 8 10.5 12.5 6",
  right: "M6 3.5 10.5 8 6 12.5",
  download: "M8 2.5v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v3h-3",
};

export function Icon({ name }: { name: string }): JSX.Element {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name] ?? ""} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
