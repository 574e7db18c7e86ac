// The pages, in the order of the navigation. Those that are opened first are in the first load; others come when opened.
import type { ComponentType } from "preact";

export interface PageInfo {
  path: string;
  title: string;
  icon: string;
  group: number; // a rule stands between groups in the navigation
  load?: () => Promise<{ default: ComponentType }>;
}

export const PAGES: readonly PageInfo[] = [
  { path: "now", title: "Now", icon: "now", group: 0 },
  { path: "runs", title: "Runs", icon: "runs", group: 0 },
  { path: "gates", title: "Gates", icon: "gates", group: 0, load: () => import("./gates") },
  { path: "dead-letters", title: "Dead letters", icon: "dead", group: 0, load: () => import("./dead-letters") },
  { path: "workflows", title: "Workflows", icon: "workflows", group: 1, load: () => import("./workflows") },
  { path: "workers", title: "Workers", icon: "workers", group: 1, load: () => import("./workers") },
  { path: "settings", title: "Settings", icon: "settings", group: 2, load: () => import("./settings") },
  { path: "api", title: "API", icon: "api", group: 2, load: () => import("./api") },
];
