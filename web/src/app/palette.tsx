// The palette (Ctrl-K): every page, every action of this page, recent runs; and the list of keys (?).
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, inNamespace } from "../api/client";
import type { Page, RunRow } from "../api/types";
import { Dialog } from "../ui/parts";
import { Glyph } from "../ui/status";
import { keyList } from "./keys";
import { PAGES } from "../pages/index";
import { go } from "./router";

export interface Action {
  name: string;
  hint?: string;
  status?: string;
  do: () => void;
}

export const paletteIsOpen = signal(false);
export const keysAreShown = signal(false);
const offered = signal<Action[]>([]);

/** The actions of what is shown; they are in the palette while it is. */
export function useActions(actions: Action[], key: string): void {
  useEffect(() => {
    offered.value = [...offered.value, ...actions];
    return () => (offered.value = offered.value.filter((each) => !actions.includes(each)));
  }, [key]);
}

export function Palette() {
  const [text, setText] = useState("");
  const [index, setIndex] = useState(0);
  const [runs, setRuns] = useState<RunRow[]>([]);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    get<Page<RunRow>>(inNamespace("runs"), { limit: 20 }).then((page) => setRuns(page.items), () => setRuns([]));
  }, []);
  const all = useMemo<Action[]>(() => [
    ...offered.value,
    ...PAGES.map((page): Action => ({ name: page.title, hint: "page", do: () => go(page.path) })),
    ...runs.map((row): Action => ({ name: row.name || `${row.workflow} ${row.id.slice(0, 8)}`, hint: row.workflow, status: row.status, do: () => go(["runs", row.id]) })),
    { name: "Keys of the keyboard", hint: "?", do: () => (keysAreShown.value = true) },
  ], [runs, offered.value]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((each) => words.every((word) => `${each.name} ${each.hint ?? ""}`.toLowerCase().includes(word))).slice(0, 40);
  const byId = /^[0-9a-f]{8,}$/.test(text.trim()) ? [{ name: `Run ${text.trim()}`, hint: "by its id", do: () => go(["runs", text.trim()]) }] : [];
  const shown: Action[] = [...byId, ...found];
  const chosen = Math.min(index, shown.length - 1);
  const close = () => (paletteIsOpen.value = false);
  const take = (action: Action | undefined) => {
    close();
    action?.do();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = Math.max(0, Math.min(shown.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      setIndex(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(shown[chosen]);
    }
  };
  return (
    <Dialog onClose={close} className="palette">
      <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="Go to a page, an action or a run"
        aria-activedescendant={`palette-${chosen}`} placeholder="Go to a page, an action, a run …" value={text} onKeyDown={press}
        onInput={(event) => { setText(event.currentTarget.value); setIndex(0); }} />
      <ul id="palette-list" role="listbox" aria-label="Results" ref={list}>
        {shown.map((each, at) => (
          <li key={at} id={`palette-${at}`} role="option" aria-selected={at === chosen} onMouseMove={() => setIndex(at)} onClick={() => take(each)}>
            {each.status ? <Glyph status={each.status} /> : null}
            <span class="cut">{each.name}</span>
            {each.hint ? <span class="muted">{each.hint}</span> : null}
          </li>
        ))}
        {shown.length ? null : <li class="muted" aria-disabled="true">nothing is called like this</li>}
      </ul>
    </Dialog>
  );
}

export function KeysDialog() {
  const known = new Map<string, string>();
  for (const each of keyList.value) known.set(each.keys, each.about);
  return (
    <Dialog title="Keys" onClose={() => (keysAreShown.value = false)}>
      <table class="plain">
        <tbody>
          {[...known].map(([keys, about]) => (
            <tr key={keys}><td>{keys.split("+").map((each) => <kbd key={each}>{each === " " ? "Space" : each}</kbd>)}</td><td>{about}</td></tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}
