// The frame around every page: navigation, what the server says about itself, layers above the page.
import { signal, useComputed } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, get, inNamespace, lastAnswer, me, signOut } from "../api/client";
import { isNewer, subscribe, version } from "../api/stream";
import { Icon } from "../ui/icons";
import { Button, count, DialogLayer, IconButton, Loading, notify, ToastLayer, Trouble } from "../ui/parts";
import { Moment, zoneName } from "../ui/time";
import { TipLayer } from "../ui/tip";
import { Loop } from "../pages/loop";
import { Now } from "../pages/now";
import { PAGES, type PageInfo } from "../pages/index";
import { Run } from "../pages/run";
import { Runs } from "../pages/runs";
import { useKeys } from "./keys";
import { KeysDialog, keysAreShown, Palette, paletteIsOpen } from "./palette";
import { prefer, preferences, type Theme } from "./preferences";
import { go, href, place } from "./router";

/** What needs somebody, for the numbers in the navigation. */
export interface Overview {
  runs: Record<string, { count: number; capped: boolean }>;
  gates: number;
  dead_letters: { fingerprint: string; tool: string; kind: string; message?: string; commands: number; runs: number; last: string | null }[];
  workers: number;
  queues: { name: string; waiting: number; leased: number; oldest: string | null }[];
}
export const overview = signal<Overview | null>(null);

const THEMES: readonly Theme[] = ["system", "light", "dark"];

export function Shell() {
  const [isMenuOpen, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const where = useComputed(() => place.value.path.join("/")).value;
  useEffect(() => {
    setMenu(false);
    main.current?.scrollTo?.(0, 0);
  }, [where]);
  useEffect(() => {
    get<Overview>(inNamespace("overview")).then((found) => (overview.value = found), () => undefined);
    return subscribe("overview", (event) => {
      if (event.name === "overview") overview.value = event.data as Overview;
    });
  }, [place.value.ns]);
  useKeys([
    { keys: "Ctrl+k", about: "palette: pages, actions, runs", do: () => (paletteIsOpen.value = !paletteIsOpen.value) },
    { keys: "?", about: "these keys", do: () => (keysAreShown.value = true) },
    { keys: "Escape", about: "back", do: () => history.back() },
  ]);
  const isGone = connection.value === "gone";
  return (
    <div class={`shell ${isGone ? "gone-server" : ""}`}>
      <header class="topbar">
        <IconButton icon="menu" label="Menu" onClick={() => setMenu(true)} />
        <a class="brand" href={href("now")}><Mark />Refold</a>
        <span class="grow" />
        <IconButton icon="search" label="Palette" onClick={() => (paletteIsOpen.value = true)} />
      </header>
      {isMenuOpen ? <button type="button" class="veil" aria-label="Close the menu" onClick={() => setMenu(false)} /> : null}
      <Side isOpen={isMenuOpen} />
      <main class="main" ref={main} tabIndex={-1} id="main">
        {isGone ? <div class="notice" role="status">The server does not answer. This is what it said {lastAnswer.value ? <>at <Moment at={new Date(lastAnswer.value).toISOString()} /></> : "last"}; the page tries again.</div> : null}
        {isNewer.value ? <div class="notice" role="status">The server is newer than this page.<Button isSmall onClick={() => location.reload()}>Reload</Button></div> : null}
        <Shown />
      </main>
      {paletteIsOpen.value ? <Palette /> : null}
      {keysAreShown.value ? <KeysDialog /> : null}
      <DialogLayer />
      <ToastLayer />
      <TipLayer />
    </div>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 18 18" aria-hidden="true">
      <path d="M2 2.5h8.5L16 8v7.5H2z" fill="var(--accent)" />
      <path d="M10.5 2.5 16 8h-5.5z" fill="var(--surface)" opacity="0.65" />
      <path d="M5 9.5h4M5 12.2h7.5" stroke="var(--surface)" stroke-width="1.4" stroke-linecap="round" />
    </svg>
  );
}

function Side({ isOpen }: { isOpen: boolean }) {
  const current = place.value.path[0];
  const groups = [...new Set(PAGES.map((page) => page.group))];
  const tallies: Record<string, [number, string]> = {
    gates: [overview.value?.gates ?? 0, "warm"],
    "dead-letters": [overview.value?.dead_letters.length ?? 0, "hot"],
  };
  const nextTheme = () => {
    const next = THEMES[(THEMES.indexOf(preferences.value.theme) + 1) % THEMES.length] ?? "system";
    prefer({ theme: next });
  };
  return (
    <nav class={`side ${isOpen ? "open" : ""}`} aria-label="Pages">
      <a class="brand" href={href("now")}><Mark />Refold</a>
      {groups.map((group) => (
        <div class="nav" key={group}>
          {PAGES.filter((page) => page.group === group).map((page) => {
            const tally = tallies[page.path];
            return (
              <a key={page.path} href={href(page.path)} aria-current={current === page.path ? "page" : undefined}>
                <Icon name={page.icon} />{page.title}
                {tally?.[0] ? <span class={`tally ${tally[1]}`}>{count(tally[0])}</span> : null}
              </a>
            );
          })}
        </div>
      ))}
      <div class="side-foot">
        <div class="row"><span class={`live ${connection.value === "live" ? "on" : connection.value === "gone" ? "off" : ""}`}>
          {{ live: "live", gone: "not connected", "signed-out": "signed out", connecting: "connecting", quiet: "connecting" }[connection.value]}</span>
          <span>{version.value}</span></div>
        <div class="row"><span>zone</span><button type="button" class="mini" onClick={() => prefer({ zone: preferences.value.zone === "UTC" ? "local" : "UTC" })}>{zoneName.value}</button></div>
        <div class="row"><span>theme</span><button type="button" class="mini" onClick={nextTheme}>{preferences.value.theme}</button></div>
        <div class="row"><span class="cut">{me.value?.name} <span class="muted">({me.value?.role})</span></span><button type="button" class="mini" onClick={() => signOut().catch((error: Error) => notify(error.message, true))}>sign out</button></div>
        <div class="row"><button type="button" class="mini" onClick={() => (paletteIsOpen.value = true)}><kbd>Ctrl</kbd> <kbd>K</kbd> go to</button><button type="button" class="mini" onClick={() => (keysAreShown.value = true)}><kbd>?</kbd> keys</button></div>
      </div>
    </nav>
  );
}

/** The page that the address names. */
function Shown() {
  const [first, second, third, fourth] = place.value.path;
  if (first === "now") return <Now />;
  if (first === "runs" && !second) return <Runs />;
  if (first === "runs" && second && third === "loops" && fourth) return <Loop key={`${second}/${fourth}`} run={second} step={fourth} />;
  if (first === "runs" && second) return <Run key={second} run={second} />;
  const page = PAGES.find((each) => each.path === first && each.load);
  return page ? <Later key={page.path} page={page} /> : <NoPage />;
}

/** A page whose script comes when it is opened. */
function Later({ page }: { page: PageInfo }) {
  const [found, setFound] = useState<{ Page: ComponentType } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const load = () => {
    setError(null);
    page.load?.().then((module) => setFound({ Page: module.default }), setError);
  };
  useEffect(load, [page.path]);
  if (error) return <div class="page"><Trouble error={error} onAgain={load} /></div>;
  return found ? <found.Page /> : <div class="page"><Loading /></div>;
}

function NoPage() {
  return <div class="page"><div class="empty"><b>There is no page at this address.</b><button type="button" class="btn" onClick={() => go("now")}>Go to Now</button></div></div>;
}
