// The small text that appears at the mouse or at the focus.
import { signal } from "@preact/signals";

interface Tip {
  text: string;
  x: number;
  y: number;
}

const shown = signal<Tip | null>(null);

/** Properties that give an element a tip. The text is made when it is shown. */
export function tip(text: string | (() => string)) {
  const show = (event: Event) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    shown.value = { text: typeof text === "string" ? text : text(), x: box.left, y: box.bottom + 6 };
  };
  const hide = () => (shown.value = null);
  return { onMouseEnter: show, onMouseLeave: hide, onFocus: show, onBlur: hide };
}

export function showTip(text: string, x: number, y: number): void {
  shown.value = { text, x, y };
}

export function hideTip(): void {
  shown.value = null;
}

export function TipLayer() {
  const each = shown.value;
  if (!each?.text) return null;
  const isLow = each.y > innerHeight - 90;
  const style = {
    left: `${Math.max(8, Math.min(each.x, innerWidth - 372))}px`,
    ...(isLow ? { bottom: `${innerHeight - each.y + 34}px` } : { top: `${each.y}px` }),
  };
  return <div class="tip" role="tooltip" style={style}>{each.text}</div>;
}
