// Lays graphs out away from the main thread.
import { arranged, type LayoutRequest } from "./arrange";

export type { LayoutReply, LayoutRequest } from "./arrange";

addEventListener("message", ({ data }: MessageEvent<LayoutRequest>) => postMessage(arranged(data)));
