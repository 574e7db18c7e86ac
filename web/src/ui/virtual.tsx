// A list that draws only the rows that can be seen. The rows come from a window that the caller fills.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "preact/hooks";

interface VirtualProps {
  count: number;
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  label: string;
  className?: string;
  /** The rows that can be seen now, for fetching what is missing. */
  onRange?: (first: number, last: number) => void;
  /** A row to bring into sight; changes when it has to be done again. */
  reveal?: { index: number; align?: "start" | "center" | "end" | "auto" } | null;
  /** Stay at the end while rows come, until the reader scrolls up. */
  follows?: boolean;
  onFollow?: (isAtEnd: boolean) => void;
  onKeyDown?: (event: KeyboardEvent) => void;
  isVariable?: boolean; // rows are measured
}

const BEYOND = 8; // rows that are drawn above and below what is seen

export function VirtualList(props: VirtualProps) {
  const { count, rowHeight, row, label, className = "", onRange, reveal, follows, onFollow, onKeyDown, isVariable } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const list = useMemo(() => new Virtualizer<HTMLDivElement, HTMLElement>({
    count, estimateSize: () => rowHeight, getScrollElement: () => box.current, overscan: BEYOND,
    observeElementRect, observeElementOffset, scrollToFn: elementScroll, onChange: () => redraw(null),
  }), []);
  list.setOptions({ ...list.options, count, estimateSize: () => rowHeight, getScrollElement: () => box.current });

  useLayoutEffect(() => list._didMount(), []);
  useLayoutEffect(() => list._willUpdate());

  const items = list.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items[items.length - 1]?.index ?? 0;
  useEffect(() => onRange?.(first, last), [first, last, count]);
  useEffect(() => {
    if (reveal && reveal.index >= 0 && reveal.index < count) list.scrollToIndex(reveal.index, { align: reveal.align ?? "auto" });
  }, [reveal]);
  useLayoutEffect(() => {
    if (follows && count) list.scrollToIndex(count - 1, { align: "end" });
  }, [count, follows]);

  const scrolled = () => {
    const element = box.current;
    if (element && onFollow) onFollow(element.scrollHeight - element.scrollTop - element.clientHeight < rowHeight * 2);
  };
  return (
    <div class={`scroll ${className}`} ref={box} tabIndex={0} role="region" aria-label={label} onScroll={scrolled} onKeyDown={onKeyDown}>
      <div style={{ height: `${list.getTotalSize()}px`, position: "relative" }}>
        {items.map((each) => (
          <div key={each.index} data-index={each.index} ref={isVariable ? (element) => { if (element) list.measureElement(element); } : undefined}
            style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${each.start}px)`, ...(isVariable ? {} : { height: `${rowHeight}px` }) }}>
            {row(each.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
