// Small parts that every page uses.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { may } from "../api/client";
import type { Loaded } from "../api/resource";
import { Problem } from "../api/client";
import { Icon } from "./icons";
import { Moment } from "./time";
import { tip } from "./tip";

interface ButtonProps {
  children: ComponentChildren;
  onClick: () => void;
  needs?: string; // a permission; without it the button is greyed and says so
  why?: string; // why it cannot be pressed now
  kind?: "primary" | "danger" | "quiet" | "";
  isSmall?: boolean;
  label?: string;
  pressed?: boolean;
  hover?: string;
}

/** A button. Who may not press it sees it greyed, with the missing permission. */
export function Button({ children, onClick, needs, why, kind = "", isSmall, label, pressed, hover }: ButtonProps) {
  const missing = needs && !may(needs) ? `needs the permission "${needs}"` : (why ?? "");
  const text = missing || hover || "";
  return (
    <button type="button" class={`btn ${kind} ${isSmall ? "small" : ""}`} aria-disabled={missing ? "true" : undefined}
      aria-label={label} aria-pressed={pressed} {...(text ? tip(text) : {})}
      onClick={() => { if (!missing) onClick(); }}>
      {children}
    </button>
  );
}

export function IconButton({ icon, label, onClick, isSmall, pressed, why }: { icon: string; label: string; onClick: () => void; isSmall?: boolean; pressed?: boolean; why?: string }) {
  return (
    <button type="button" class={`btn quiet icon ${isSmall ? "small" : ""}`} aria-label={label} aria-pressed={pressed}
      aria-disabled={why ? "true" : undefined} {...tip(why ? `${label}: ${why}` : label)} onClick={() => { if (!why) onClick(); }}>
      <Icon name={icon} />
    </button>
  );
}

/** What a part shows while it loads, when it failed, and when there is nothing. What it had stays, marked as old. */
export function Part<T>({ of, children, lines = 4 }: { of: Loaded<T>; children: (data: T) => ComponentChildren; lines?: number }) {
  if (of.data === null) {
    if (of.error) return <Trouble error={of.error} />;
    return of.isLoading ? <Loading lines={lines} /> : null;
  }
  return (
    <>
      {of.error ? <p class="stale" role="status">as of <Moment at={new Date(of.at).toISOString()} />: {of.error.message}</p> : null}
      {children(of.data)}
    </>
  );
}

export function Loading({ lines = 4 }: { lines?: number }) {
  return (
    <div class="loading" role="status" aria-label="loading">
      {Array.from({ length: lines }, (_, index) => <i key={index} style={{ width: `${86 - ((index * 37) % 53)}%` }} />)}
    </div>
  );
}

export function Trouble({ error, onAgain }: { error: Error; onAgain?: () => void }) {
  const trace = error instanceof Problem ? error.document.trace_id : "";
  return (
    <div class="trouble" role="alert">
      <Icon name="alert" />
      <span class="wrap">{error.message}{trace ? <span class="muted"> (trace {trace})</span> : null}</span>
      {onAgain ? <button type="button" class="btn small" onClick={onAgain}>Try again</button> : null}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><b>{title}</b>{children}</div>;
}

// ---- what has been done, in a line at the bottom

interface Toast {
  text: string;
  isBad: boolean;
}
const toast = signal<Toast | null>(null);
let toastTimer = 0;

export function notify(text: string, isBad = false): void {
  clearTimeout(toastTimer);
  toast.value = { text, isBad };
  toastTimer = setTimeout(() => (toast.value = null), isBad ? 9000 : 3500) as unknown as number;
}

export function ToastLayer() {
  const each = toast.value;
  return <div aria-live="polite">{each ? <div class={`toast ${each.isBad ? "bad" : ""}`}>{each.text}</div> : null}</div>;
}

// ---- copying

export async function copy(text: string, what = "copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify(what);
  } catch {
    notify("the browser did not allow copying", true);
  }
}

/** The command line that does the same, to copy. */
export function CommandLine({ text }: { text: string }) {
  return (
    <div class="command">
      <span class="cut" title={text}>{text}</span>
      <IconButton icon="copy" label="Copy the command" isSmall onClick={() => void copy(text, "command copied")} />
    </div>
  );
}

/** A text for a shell, quoted where it has to be. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

// ---- dialogs

interface Asking {
  title: string;
  body: () => ComponentChildren;
  actions: { label: string; kind?: "primary" | "danger"; do: () => Promise<void> | void }[];
}
const asking = signal<Asking | null>(null);

/** Ask once, with what will happen. */
export function askFor(what: Asking): void {
  asking.value = what;
}

export function closeDialog(): void {
  asking.value = null;
}

export function DialogLayer() {
  const each = asking.value;
  return each ? <Dialog title={each.title} onClose={closeDialog} footer={
    <>
      <button type="button" class="btn quiet" onClick={closeDialog}>Close</button>
      {each.actions.map((action) => (
        <button key={action.label} type="button" class={`btn ${action.kind ?? ""}`} onClick={async () => { await action.do(); closeDialog(); }}>
          {action.label}
        </button>
      ))}
    </>
  }>{each.body()}</Dialog> : null;
}

/** A dialog keeps the focus, and gives it back to where it was. */
export function Dialog({ title, onClose, children, footer, className = "" }: { title?: string; onClose: () => void; children: ComponentChildren; footer?: JSX.Element; className?: string }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const first = (["input:not([type=checkbox]), textarea, select", "footer .primary, footer .danger", "button"] as const)
      .map((each) => box.current?.querySelector<HTMLElement>(each))
      .find((each) => each);
    first?.focus();
    return () => before?.focus?.();
  }, []);
  const keep = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onClose();
    } else if (event.key === "Tab") {
      const all = [...(box.current?.querySelectorAll<HTMLElement>("a[href], button:not(:disabled), input, select, textarea, [tabindex='0']") ?? [])];
      const index = all.indexOf(document.activeElement as HTMLElement);
      const next = event.shiftKey ? index - 1 : index + 1;
      if (all.length && (next < 0 || next >= all.length)) {
        event.preventDefault();
        all[event.shiftKey ? all.length - 1 : 0]?.focus();
      }
    }
  };
  return (
    <div class="over" onMouseDown={(event) => { if (event.target === event.currentTarget) onClose(); }} onKeyDown={keep}>
      <div class={`dialog ${className}`} role="dialog" aria-modal="true" aria-label={title} ref={box}>
        {title ? <header><span>{title}</span><IconButton icon="close" label="Close" isSmall onClick={onClose} /></header> : null}
        {title ? <div class="body">{children}</div> : children}
        {footer ? <footer>{footer}</footer> : null}
      </div>
    </div>
  );
}

/** A filter that is on, with a cross that takes it away. */
export function Chip({ name, value, onRemove }: { name: string; value: string; onRemove: () => void }) {
  return (
    <span class="chip on">
      <span>{name} <b class="cut">{value}</b></span>
      <button type="button" class="x" aria-label={`Remove the filter ${name} ${value}`} onClick={onRemove}>×</button>
    </span>
  );
}

/** A number as people write it: 12,408. */
export function count(number: number, isCapped = false): string {
  return number.toLocaleString("en-US") + (isCapped ? "+" : "");
}

export function bytes(size: number): string {
  return size < 1024 ? `${size} B` : size < 1024 * 1024 ? `${(size / 1024).toFixed(1)} KB` : `${(size / 1024 / 1024).toFixed(1)} MB`;
}
