// What can be done with a run, as buttons, in the palette, and as commands to copy.
import { useEffect, useState } from "preact/hooks";
import { ask, get, link, may, post, Problem, runPath } from "../api/client";
import type { RunHead } from "../api/types";
import { Button, bytes, closeDialog, CommandLine, copy, Dialog, notify, quoted } from "../ui/parts";
import { Icon } from "../ui/icons";
import type { RunModel } from "./model";

const OVER = new Set(["completed", "failed", "cancelled", "continued"]);

export interface RunAction {
  name: string;
  label: string;
  verb: string; // the word of the permission list of the run
  kind?: "primary" | "danger";
  icon?: string;
  command: (run: string) => string;
  about: (head: RunHead) => string;
  field?: { name: string; label: string; placeholder: string; isJson?: boolean };
  path?: (text: string) => string[];
}

export const ACTIONS: readonly RunAction[] = [
  { name: "retry", label: "Retry", verb: "retry", kind: "primary", icon: "retry", command: (run) => `refold runs retry ${run}`,
    about: (head) => { const failed = head.steps.filter((each) => each.status === "failed").length; const items = head.steps.reduce((sum, each) => sum + each.failed, 0); return `${failed || "No"} failed ${failed === 1 ? "step runs" : "steps run"} again${items ? `, and ${items} failed items with ${failed === 1 ? "it" : "them"}` : ""}. What has completed stays.`; } },
  { name: "resume", label: "Resume", verb: "resume", kind: "primary", icon: "play", command: (run) => `refold runs resume ${run}`, about: () => "The run continues where it was paused." },
  { name: "pause", label: "Pause", verb: "pause", icon: "pause", command: (run) => `refold runs pause ${run}`,
    about: (head) => { const open = head.reasons.filter((each) => each.kind === "running").length; return `No further step begins. ${open ? `${open} commands that workers execute now are finished first.` : "Nothing is executed at this moment."}`; } },
  { name: "cancel", label: "Cancel", verb: "cancel", kind: "danger", command: (run) => `refold runs cancel ${run}`,
    about: (head) => { const open = head.steps.filter((each) => each.status === "issued" || each.status === "entered").length; return `${open} ${open === 1 ? "step is" : "steps are"} stopped, and its child runs are cancelled too. Finalizers still run.`; },
    field: { name: "reason", label: "Reason", placeholder: "for the log" } },
  { name: "signal", label: "Send a signal", verb: "signal", command: (run) => `refold runs signal ${run} NAME --value JSON`, about: () => "A step that waits for this signal takes it; otherwise the run keeps it.",
    field: { name: "value", label: "Value (JSON)", placeholder: "null", isJson: true }, path: (name) => ["signals", name] },
  { name: "migrate", label: "Migrate", verb: "migrate", command: (run) => `refold runs migrate ${run} FILE`, about: () => "From here on the run follows another plan. Steps that have completed stay completed.",
    field: { name: "to", label: "Hash of the plan", placeholder: "64 characters" } },
];

/** Why a run cannot be changed so now; empty: it can. */
function obstacle(action: RunAction, head: RunHead, isPast: boolean): string {
  if (isPast) return "you look at the past: go to now first";
  if (!may("operate")) return 'needs the permission "operate"';
  if (head.may.includes(action.verb)) return "";
  if (!head.may.length && !OVER.has(head.status)) return "this server only reads";
  if (action.name === "retry") return OVER.has(head.status) ? `the run is ${head.status}` : "the run is not over";
  if (action.name === "resume") return "the run is not paused";
  if (action.name === "pause" && head.status === "paused") return "the run is paused";
  return `the run is ${head.status}`;
}

export function RunActions({ model }: { model: RunModel }) {
  const [open, setOpen] = useState<RunAction | null>(null);
  const [isMenu, setMenu] = useState(false);
  const [size, setSize] = useState("");
  const head = model.head.value;
  useEffect(() => {
    if (isMenu && may("values")) get<{ bytes: number }>(runPath(model.id, "export"), { as: "size" }).then((found) => setSize(bytes(found.bytes)), () => setSize(""));
  }, [isMenu]);
  if (!head) return null;
  const isPast = model.at.value !== null;
  const isOver = OVER.has(head.status);
  const main = isOver ? ["retry"] : head.status === "paused" ? ["resume", "cancel"] : ["pause", "cancel"];
  const button = (action: RunAction) => (
    <Button key={action.name} {...(action.kind && action.name !== "cancel" ? { kind: action.kind === "primary" && head.status === "completed" ? "" : action.kind } : {})}
      why={obstacle(action, head, isPast)} onClick={() => setOpen(action)} hover={action.command(head.name || head.id)}>
      {action.icon ? <Icon name={action.icon} /> : null}{action.label}
    </Button>
  );
  const others = ACTIONS.filter((each) => !main.includes(each.name));
  const close = () => setMenu(false);
  return (
    <div class="row actions">
      {ACTIONS.filter((each) => main.includes(each.name)).map(button)}
      <div class="menu-holder">
        <button type="button" class="btn icon" aria-label="More actions" aria-expanded={isMenu} onClick={() => setMenu(!isMenu)}><Icon name="more" /></button>
        {isMenu ? (
          <>
            <button type="button" class="menu-veil" aria-label="Close the menu" onClick={close} />
            <div class="menu" role="menu" onKeyDown={(event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } }}>
              {others.map((each) => {
                const why = obstacle(each, head, isPast);
                return <button key={each.name} type="button" role="menuitem" aria-disabled={why ? "true" : undefined} title={why} onClick={() => { if (!why) { close(); setOpen(each); } }}>{each.label}<span class="muted cut">{why}</span></button>;
              })}
              <hr />
              <button type="button" role="menuitem" onClick={() => { close(); void copy(head.id, "id copied"); }}>Copy the id</button>
              <a role="menuitem" href={link(runPath(head.id, "export"))} download aria-disabled={may("values") ? undefined : "true"} onClick={close}>Download as a file</a>
              <a role="menuitem" href={link(runPath(head.id, "export"), { as: "html" })} download aria-disabled={may("values") ? undefined : "true"} onClick={close}>Download as a page<span class="muted">{size}</span></a>
            </div>
          </>
        ) : null}
      </div>
      {open ? <ActionDialog action={open} model={model} head={head} onClose={() => setOpen(null)} /> : null}
    </div>
  );
}

/** Asks once, with what will happen, and sends with the state that is on the screen: what has changed meanwhile is refused. */
function ActionDialog({ action, model, head, onClose }: { action: RunAction; model: RunModel; head: RunHead; onClose: () => void }) {
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<Error | null>(null);
  const [tag] = useState(model.tag.value);
  const run = quoted(head.name || head.id);
  const send = async () => {
    try {
      const body = !action.field ? "{}" : action.field.isJson ? `{"${action.field.name}":${text.trim() || "null"}}` : JSON.stringify({ [action.field.name]: text });
      const path = runPath(head.id, ...(action.path ? action.path(name) : [action.name]));
      const answer = await ask<RunHead>(path, { method: "POST", body, ifMatch: tag });
      model.head.value = answer.data;
      model.tag.value = answer.tag;
      notify(`${action.label}: the run is ${answer.data.status}`);
      onClose();
    } catch (error) {
      setProblem(error as Error);
      if (error instanceof Problem && error.status === 412) void model.refresh();
    }
  };
  return (
    <Dialog title={`${action.label}${action.field ? "" : " the run"}`} onClose={onClose} footer={
      <>
        <button type="button" class="btn quiet" onClick={onClose}>Close</button>
        <button type="button" class={`btn ${action.kind === "danger" ? "danger" : "primary"}`} onClick={() => void send()}>{action.label}</button>
      </>
    }>
      <p>{action.about(head)}</p>
      {action.path ? <label class="col gap-s"><span class="label">Name of the signal</span><input class="field" value={name} list="signals" onInput={(event) => setName(event.currentTarget.value)} />
        <datalist id="signals">{head.reasons.filter((each) => each.signal).map((each) => <option key={each.signal} value={each.signal} />)}</datalist></label> : null}
      {action.field ? <label class="col gap-s"><span class="label">{action.field.label}</span><input class="field" value={text} placeholder={action.field.placeholder} onInput={(event) => setText(event.currentTarget.value)} /></label> : null}
      {problem ? <p class="trouble" role="alert"><span class="wrap">{problem.message}</span></p> : null}
      <CommandLine text={action.command(run)} />
    </Dialog>
  );
}

/** Send a change that has no dialog, with the state that is on the screen. */
export async function steer(model: RunModel, parts: (string | number)[], body: unknown, done: string): Promise<void> {
  try {
    model.head.value = await post<RunHead>(runPath(model.id, ...parts), body, model.tag.value);
    closeDialog();
    notify(done);
  } catch (error) {
    notify((error as Error).message, true);
    await model.refresh();
  }
}
