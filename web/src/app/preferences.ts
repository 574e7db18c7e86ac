// What the browser keeps: preferences and saved filters. Never a value of a run, never a token.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export interface SavedFilter {
  name: string;
  query: Record<string, string>;
}

export interface Preferences {
  theme: Theme;
  zone: string; // "local", "UTC", or an IANA name
  filters: SavedFilter[];
  seen: string; // when the page Now was last looked at
  hidesDone: boolean;
}

const KEY = "refold.preferences";
const USUAL: Preferences = { theme: "system", zone: "local", filters: [], seen: "", hidesDone: false };

export const preferences = signal<Preferences>(load());

function load(): Preferences {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof kept === "object" && kept !== null ? { ...USUAL, ...kept } : USUAL;
  } catch {
    return USUAL;
  }
}

export function prefer(changes: Partial<Preferences>): void {
  preferences.value = { ...preferences.value, ...changes };
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences.value));
  } catch {
    // a browser that keeps nothing shows the page all the same
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(dark.matches);

export function startTheme(): void {
  dark.addEventListener("change", () => (systemIsDark.value = dark.matches));
  effect(() => {
    const chosen = preferences.value.theme;
    const isDark = chosen === "system" ? systemIsDark.value : chosen === "dark";
    document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  });
}
