// The keys of the whole page. Parts register theirs while they are shown; the newest wins.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Key {
  keys: string; // as event.key, or "Ctrl+k"
  about: string;
  do: (event: KeyboardEvent) => void;
}

const registered: Key[][] = [];
export const keyList = signal<readonly Key[]>([]);

export function useKeys(keys: Key[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const mine = keys.map((each, index): Key => ({ ...each, do: (event) => latest.current[index]?.do(event) }));
    registered.push(mine);
    keyList.value = registered.flat();
    return () => {
      registered.splice(registered.indexOf(mine), 1);
      keyList.value = registered.flat();
    };
  }, [keys.map((each) => each.keys).join(" ")]);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startKeys(): void {
  addEventListener("keydown", (event) => {
    const name = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + event.key;
    if (event.altKey || (isTyping(event.target) && !name.startsWith("Ctrl+") && event.key !== "Escape")) return;
    if (document.querySelector("[role=dialog]") && name !== "Ctrl+k") return;
    if ((event.key === " " || event.key === "Enter") && event.target instanceof Element && event.target.closest("button, a, summary, [role=tab]")) return;
    for (const group of [...registered].reverse()) {
      const found = group.find((each) => each.keys === name);
      if (found) {
        event.preventDefault();
        found.do(event);
        return;
      }
    }
  });
}
