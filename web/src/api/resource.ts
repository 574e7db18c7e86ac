// A part of a page that is fetched: it loads, fails and goes stale by itself.
import { signal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Answer, NoAnswer } from "./client";

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
  isLoading: boolean;
  at: number; // when the data came
  tag: string;
}

export interface Resource<T> {
  state: ReadonlySignal<Loaded<T>>;
  /** Fetch again; what is shown stays until the answer comes. */
  reload: () => void;
  /** Show data that came another way, such as an event of the stream. */
  set: (data: T, tag?: string) => void;
}

const AGAIN = 2000; // milliseconds until a server that did not answer is asked again

/** Fetch whenever `key` changes; an empty key fetches nothing. The old data goes when the key changes, unless `keeps`. */
export function useResource<T>(key: string, fetch: (abort: AbortSignal) => Promise<Answer<T> | T>, keeps = false): Resource<T> {
  const state = useMemo(() => signal<Loaded<T>>({ data: null, error: null, isLoading: true, at: 0, tag: "" }), []);
  const latest = useRef(fetch);
  latest.current = fetch;
  const control = useRef<{ abort: AbortController | null; timer: number; key: string }>({ abort: null, timer: 0, key: "" });

  const load = useMemo(() => () => {
    const mine = control.current;
    mine.abort?.abort();
    clearTimeout(mine.timer);
    if (!mine.key) return;
    const abort = (mine.abort = new AbortController());
    state.value = { ...state.value, isLoading: true };
    latest.current(abort.signal).then(
      (found) => {
        if (abort.signal.aborted) return;
        const answer = isAnswer<T>(found) ? found : { data: found, tag: "" };
        state.value = { data: answer.data, error: null, isLoading: false, at: Date.now(), tag: answer.tag };
      },
      (error: Error) => {
        if (abort.signal.aborted) return;
        state.value = { ...state.value, error, isLoading: false };
        if (error instanceof NoAnswer) mine.timer = setTimeout(load, AGAIN) as unknown as number;
      },
    );
  }, []);

  useEffect(() => {
    const mine = control.current;
    mine.key = key;
    if (!keeps) state.value = { data: null, error: null, isLoading: Boolean(key), at: 0, tag: "" };
    load();
    return () => {
      mine.abort?.abort();
      clearTimeout(mine.timer);
    };
  }, [key]);

  return useMemo(() => ({
    state,
    reload: load,
    set: (data: T, tag = "") => (state.value = { data, error: null, isLoading: false, at: Date.now(), tag }),
  }), []);
}

function isAnswer<T>(found: Answer<T> | T): found is Answer<T> {
  return typeof found === "object" && found !== null && "text" in found && "tag" in found && "data" in found;
}
