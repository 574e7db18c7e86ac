// The pages, in the order of the navigation. Those that are opened first are in the first load; others come when opened.
import type { ComponentType } from "preact";

export interface PageInfo {
  path: string;
  title: string;
  icon: string;
  group: number; // a rule stands between groups in the navigation
  load?: () => Promise<{ default: ComponentType }>;
}

type Later = typeof import("./later");

const later = (name: keyof Later) => () => import("./later").then((pages) => ({ default: pages[name] }));

export const PAGES: readonly PageInfo[] = [
  { path: "now", title: "Now", icon: "now", group: 0 },
  { path: "runs", title: "Runs", icon: "runs", group: 0 },
  { path: "gates", title: "Gates", icon: "gates", group: 0, load: later("Gates") },
  { path: "dead-letters", title: "Dead letters", icon: "dead", group: 0, load: later("DeadLetters") },
  { path: "workflows", title: "Workflows", icon: "workflows", group: 1, load: later("Workflows") },
  { path: "schedules", title: "Schedules", icon: "schedules", group: 1, load: later("Schedules") },
  { path: "workers", title: "Workers", icon: "workers", group: 1, load: later("Workers") },
  { path: "operations", title: "Operations", icon: "operations", group: 1, load: later("Operations") },
  { path: "settings", title: "Settings", icon: "settings", group: 2, load: later("Settings") },
  { path: "api", title: "API", icon: "api", group: 2, load: later("Api") },
];
