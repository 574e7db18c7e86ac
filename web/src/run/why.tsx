// Why something waits, in the words of the server, with a link to what it waits for.
import type { Reason } from "../api/types";
import { href, runHref } from "../app/router";
import { inZone } from "../ui/time";

const COMMANDS: Record<string, string> = {
  no_worker: "refold worker",
  no_code: "refold worker",
  no_tool: "refold worker",
};

export function Why({ reason, isShort }: { reason: Reason | null | undefined; isShort?: boolean }) {
  if (!reason) return null;
  const target = reason.run ? runHref(reason.run)
    : reason.kind === "gate" || (reason.kind === "signal" && reason.signal?.startsWith("answer:")) ? href("gates")
    : ["slot", "running", "no_worker", "no_code", "no_tool", "no_queue"].includes(reason.kind) ? href("workers") : "";
  const text = <span class={isShort ? "cut" : "wrap"}>{inZone(reason.text)}</span>;
  const command = COMMANDS[reason.kind] ?? (reason.kind === "no_queue" && reason.note ? `refold worker --queue ${reason.note}` : "");
  return (
    <span class={`why why-${reason.kind}`} title={inZone(reason.text)}>
      {target ? <a class="link cut" href={target} onClick={(event) => event.stopPropagation()}>{text}</a> : text}
      {command && !isShort ? <code class="helps">{command}</code> : null}
    </span>
  );
}
