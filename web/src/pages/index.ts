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
];
