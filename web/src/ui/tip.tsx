// The small text that appears at the mouse or at the focus.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

interface Tip {
  text: string;
  x: number;
  y: number;
  of?: Element; // what it belongs to: it goes with it
}

const shown = signal<Tip | null>(null);

/** Properties that give an element a tip. The text is made when it is shown. */
export function tip(text: string | (() => string)) {
  const show = (event: Event) => {
    const of = event.currentTarget as Element;
    const box = of.getBoundingClientRect();
    shown.value = { text: typeof text === "string" ? text : text(), x: box.left, y: box.bottom + 6, of };
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
  const of = each?.of;
  // A button that is gone, or that can be pressed by now, gives no sign that its tip is out of date.
  useEffect(() => {
    if (!of) return;
    const observer = new MutationObserver((changes) => {
      if (!of.isConnected || changes.some((change) => change.target === of && change.type === "attributes")) hideTip();
    });
    observer.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-disabled"] });
    return () => observer.disconnect();
  }, [of]);
  if (!each?.text) return null;
  const isLow = each.y > innerHeight - 90;
  const style = {
    left: `${Math.max(8, Math.min(each.x, innerWidth - 372))}px`,
    ...(isLow ? { bottom: `${innerHeight - each.y + 34}px` } : { top: `${each.y}px` }),
  };
  return <div class="tip" role="tooltip" style={style}>{each.text}</div>;
}
