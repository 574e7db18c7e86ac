// What waits for people: gates with their forms, and questions of Python workflows.
import { useEffect, useState } from "preact/hooks";
import { ask, get, inNamespace, may, me, Problem, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import { useKeys } from "../app/keys";
import { choose, place, runHref } from "../app/router";
import { Icon } from "../ui/icons";
import { JsonOf } from "../ui/json";
import { Button, Chip, CommandLine, count, Empty, notify, Part, quoted } from "../ui/parts";
import { beginning, type Faults, faultsOf, type Schema, SchemaForm, type Text } from "../ui/schema-form";
import { Glyph } from "../ui/status";
import { Moment } from "../ui/time";

interface Gate {
  run: string;
  name: string | null;
  workflow: string;
  gate: string;
  step?: string;
  visit: number;
  type: string;
  prompt?: string;
  options?: Record<string, string>;
  refuse?: string[];
  choices?: Record<string, string>; // any number of which may be taken, with a label for each
  form?: Schema | null;
  fields?: Schema | null;
  event?: string | null;
  data?: unknown;
  metadata?: unknown;
  assignee?: string | null;
  min_approvals?: number;
  approvals?: { by?: string; option?: string; [name: string]: unknown }[];
  deadline: string | null;
  on_timeout?: string | null;
}

const keyOf = (gate: Gate) => `${gate.run}/${gate.gate}/${gate.visit}`;
const labelOf = (gate: Gate) => gate.name || `${gate.workflow} ${gate.run.slice(0, 8)}`;

export default function Gates() {
  const { assignee = "", order = "deadline", open = "" } = place.value.query;
  const gates = useResource<{ items: Gate[] }>(`${place.value.ns}|${assignee}|${order}`, (abort) => get(inNamespace("gates"), { assignee, order }, abort), true);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => subscribe("gates", (event) => {
    if (event.name === "gates" || event.name === "reset") gates.reload();
  }), []);
  const found = gates.state.value.data?.items ?? [];
  const at = found.findIndex((gate) => keyOf(gate) === open);
  const step = (by: number) => {
    const next = found[Math.max(0, Math.min(found.length - 1, at + by))];
    if (next) choose({ open: keyOf(next) }, true);
  };
  useKeys([
    { keys: "j", about: "next gate", do: () => step(1) },
    { keys: "k", about: "previous gate", do: () => step(-1) },
  ]);
  const chosen = found.filter((gate) => selected.has(keyOf(gate)));
  const toggle = (gate: Gate) => {
    const next = new Set(selected);
    if (!next.delete(keyOf(gate))) next.add(keyOf(gate));
    setSelected(next);
  };
  const done = () => {
    setSelected(new Set());
    gates.reload();
  };
  const mine = me.value?.name ?? "";
  return (
    <div class="page" data-page="gates">
      <div class="page-head">
        <h1>Gates</h1>
        <span class="muted">{found.length ? `${count(found.length)} waiting for a person` : ""}</span>
        <span class="spacer" />
        <div class="chips">
          {assignee ? <Chip name="assignee" value={assignee} onRemove={() => choose({ assignee: null })} /> :
            <button type="button" class="chip" onClick={() => choose({ assignee: mine })}>for me</button>}
          <button type="button" class="chip" aria-pressed={order === "deadline"} onClick={() => choose({ order: null })}>by deadline</button>
          <button type="button" class="chip" aria-pressed={order === "created"} onClick={() => choose({ order: "created" })}>newest first</button>
        </div>
      </div>
      {chosen.length ? <Several gates={chosen} onDone={done} /> : null}
      <Part of={gates.state.value}>
        {({ items }) => items.length ? (
          <div class="card rows">
            {items.map((gate) => {
              const key = keyOf(gate);
              return <GateRow key={key} gate={gate} isOpen={key === open} isSelected={selected.has(key)} onSelect={() => toggle(gate)} onDone={done} />;
            })}
          </div>
        ) : (
          <div class="card">
            <Empty title={assignee ? `Nothing waits for ${assignee}.` : "Nobody has to decide anything."}>
              {assignee ? <Button onClick={() => choose({ assignee: null })}>Show what waits for others</Button> :
                <span>A step of the kind <code>gate</code> waits here for a decision, and a question of a Python workflow for its answer.</span>}
            </Empty>
          </div>
        )}
      </Part>
      <CommandLine text={"refold gates list"} />
    </div>
  );
}

interface RowProps {
  gate: Gate;
  isOpen: boolean;
  isSelected: boolean;
  onSelect: () => void;
  onDone: () => void;
}

function GateRow({ gate, isOpen, isSelected, onSelect, onDone }: RowProps) {
  const prompt = gate.prompt || `${gate.workflow}: ${gate.step ?? gate.gate}`;
  const approved = gate.approvals?.length ?? 0;
  return (
    <section class="gate" aria-label={prompt}>
      <div class="gate-head">
        <input type="checkbox" aria-label={`Select ${prompt}`} checked={isSelected} onChange={onSelect} />
        <button type="button" class="gate-title" aria-expanded={isOpen} onClick={() => choose({ open: isOpen ? null : keyOf(gate) })}>
          <Glyph status="waiting" />
          <span class="wrap grow">{prompt}</span>
        </button>
        <span class="gate-about">
          {gate.assignee ? <span class="badge tone-quiet cut">for {gate.assignee}</span> : null}
          {(gate.min_approvals ?? 1) > 1 ? <span class="soft">{approved} of {gate.min_approvals}</span> : null}
          {gate.deadline ? <span class="soft">until <Moment at={gate.deadline} /></span> : <span class="muted">no deadline</span>}
        </span>
      </div>
      {isOpen ? <Decision gate={gate} onDone={onDone} /> : null}
    </section>
  );
}

/** Why this person cannot decide a gate, or nothing. */
function whyNot(gate: Gate): string {
  if (gate.assignee && gate.assignee !== me.value?.name) return `only ${gate.assignee} can decide this`;
  return "";
}

/** Decide with the head of the run that was read: nobody decides on what is no longer so. */
async function decide(gate: Gate, option: string, feedback: Text, choices: readonly string[], tag: string): Promise<void> {
  const body = `{"option":${JSON.stringify(option)}${feedback === undefined ? "" : `,"feedback":${feedback}`}${choices.length ? `,"choices":${JSON.stringify(choices)}` : ""}}`;
  await ask(runPath(gate.run, "gates", gate.gate, gate.visit), { method: "POST", body, ifMatch: tag });
}

function Decision({ gate, onDone }: { gate: Gate; onDone: () => void }) {
  const isQuestion = gate.type === "question";
  const schema: Schema | null = (isQuestion ? gate.fields : gate.form) ?? null;
  const [value, setValue] = useState<Text>(schema ? beginning(schema) : undefined);
  const [taken, setTaken] = useState<ReadonlySet<string>>(new Set());
  const [isChecked, setChecked] = useState(false);
  const [fromServer, setFromServer] = useState<Faults>({});
  const [error, setError] = useState("");
  const run = useResource<unknown>(gate.run, (abort) => ask(runPath(gate.run), { signal: abort }));
  const tag = run.state.value.tag;
  const choices = Object.keys(gate.choices ?? {}).filter((each) => taken.has(each));
  const own = schema ? faultsOf(schema, value, true) : {};
  const faults: Faults = isChecked ? { ...own, ...fromServer } : fromServer;
  const change = (next: Text) => {
    setValue(next);
    setFromServer({});
  };
  const refused = (problem: Error) => {
    const found: Record<string, string> = {};
    if (problem instanceof Problem) {
      for (const each of problem.document.errors ?? []) {
        const pointer = (each.pointer ?? "").replace(/^\/?(feedback|value)/, "");
        found[pointer] = each.detail ?? each.hint ?? problem.message;
      }
      if (problem.status === 412) run.reload();
    }
    setFromServer(found);
    setError(problem.message);
  };
  const send = (option: string) => {
    setChecked(true);
    setError("");
    const isRefusal = gate.refuse?.includes(option) ?? false;
    if (schema && !isRefusal && Object.keys(own).length) {
      setError("The form is not complete.");
      return;
    }
    const sent = isRefusal && Object.keys(own).length ? undefined : value;
    const sending = isQuestion
      ? ask(runPath(gate.run, "questions", gate.gate), { method: "POST", body: `{"value":${sent ?? "null"}}`, ifMatch: tag })
      : decide(gate, option, sent, isRefusal ? [] : choices, tag); // a refusal takes no choices
    Promise.resolve(sending).then(() => {
      notify(isQuestion ? "The answer was given." : `${labelOf(gate)}: ${gate.options?.[option] || option}`);
      onDone();
    }, refused);
  };
  const why = whyNot(gate);
  return (
    <div class="gate-body">
      <div class="row soft"><span>Run <a class="link" href={runHref(gate.run)}>{labelOf(gate)}</a>, step <a class="link" href={runHref(gate.run, { step: gate.step ?? gate.gate })}>{gate.step ?? gate.gate}</a>{gate.visit > 1 ? `, visit ${gate.visit}` : ""}</span></div>
      {gate.approvals?.length ? (
        <p class="soft">Decided so far: {gate.approvals.map((each) => `${each.by ?? "somebody"} (${each.option ?? ""})`).join(", ")}; {gate.min_approvals} are needed.</p>
      ) : null}
      {gate.on_timeout ? <p class="muted">If nobody decides in time, {gate.on_timeout === "fail" ? "the step fails" : `this is decided: ${gate.options?.[gate.on_timeout] || gate.on_timeout}`}.</p> : null}
      {gate.data !== undefined && gate.data !== null ? <JsonOf value={gate.data} label="What is asked about" /> : null}
      {gate.metadata ? <JsonOf value={gate.metadata} label="More about it" /> : null}
      {schema ? <SchemaForm schema={schema} text={value} onChange={change} faults={faults} isRequired /> : isQuestion ? (
        <SchemaForm schema={{}} name="answer" text={value} onChange={change} faults={faults} isRequired />
      ) : null}
      {gate.choices && Object.keys(gate.choices).length ? <Choices of={gate.choices} taken={taken} onChange={setTaken} /> : null}
      {error ? <p class="fault" role="alert">{error}</p> : null}
      <div class="row buttons">
        {isQuestion ? <Button kind="primary" needs="decide" onClick={() => send("")}>Answer</Button> :
          Object.entries(gate.options ?? {}).map(([option, words]) => (
            <Button key={option} needs="decide" why={why} kind={gate.refuse?.includes(option) ? "danger" : "primary"} onClick={() => send(option)}>{words || option}</Button>
          ))}
      </div>
      <CommandLine text={commandOf(gate, choices)} />
    </div>
  );
}

/** What can be taken besides the option: any number of these. */
function Choices({ of, taken, onChange }: { of: Record<string, string>; taken: ReadonlySet<string>; onChange: (taken: ReadonlySet<string>) => void }) {
  const toggle = (choice: string) => {
    const next = new Set(taken);
    if (!next.delete(choice)) next.add(choice);
    onChange(next);
  };
  const all = Object.keys(of);
  return (
    <fieldset class="fieldset choices">
      <legend>Choices <span class="muted">{taken.size ? `${count(taken.size)} of ${count(all.length)} taken` : "any number can be taken"}</span></legend>
      {all.map((choice) => (
        <label key={choice} class="row"><input type="checkbox" checked={taken.has(choice)} onChange={() => toggle(choice)} /><span class="wrap">{of[choice] || choice}</span></label>
      ))}
      {all.length > 2 ? <div class="row"><button type="button" class="btn quiet small" onClick={() => onChange(new Set(taken.size === all.length ? [] : all))}>{taken.size === all.length ? "Take none" : "Take all"}</button></div> : null}
    </fieldset>
  );
}

function commandOf(gate: Gate, choices: readonly string[]): string {
  const run = quoted(gate.name || gate.run);
  if (gate.type === "question") return `refold gates answer ${run} ${quoted(gate.gate)} VALUE`;
  const option = Object.keys(gate.options ?? {})[0] ?? "approve";
  return `refold gates approve ${run} ${quoted(gate.gate)} --option ${quoted(option)}${choices.map((each) => ` --choose ${quoted(each)}`).join("")}`;
}

/** Several gates that have the same options, and neither a form nor choices, at once. */
function Several({ gates, onDone }: { gates: Gate[]; onDone: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const first = gates[0];
  const options = Object.keys(first?.options ?? {});
  const isSame = gates.every((gate) => Object.keys(gate.options ?? {}).join() === options.join());
  const open = gates.filter((gate) => gate.form?.required?.length).length;
  const offering = gates.filter((gate) => Object.keys(gate.choices ?? {}).length).length;
  const others = gates.filter((gate) => whyNot(gate)).length;
  const why = !options.length || !isSame ? "they do not have the same options" : open ? `${count(open)} of them have a form to fill in` :
    offering ? `${count(offering)} of them offer choices to take` :
    others ? `${count(others)} of them wait for somebody else` : "";
  const all = async (option: string) => {
    setBusy(true);
    const outcomes = await Promise.allSettled(gates.map(async (gate) => {
      const { tag } = await ask(runPath(gate.run));
      await decide(gate, option, undefined, [], tag);
    }));
    setBusy(false);
    const failed = outcomes.filter((each) => each.status === "rejected").length;
    notify(failed ? `${count(gates.length - failed)} decided, ${count(failed)} refused: they have changed` : `${count(gates.length)} decided`, failed > 0);
    onDone();
  };
  return (
    <div class="selection" role="status">
      <Icon name="gates" /><b>{count(gates.length)} selected</b>
      <span class="muted">{why}</span><span class="spacer" />
      {isSame ? options.map((option) => (
        <Button key={option} isSmall needs="decide" why={why || (isBusy ? "under way" : "")} kind={first?.refuse?.includes(option) ? "danger" : ""} onClick={() => void all(option)}>
          {first?.options?.[option] || option}: all {count(gates.length)}
        </Button>
      )) : null}
      {may("decide") ? null : <span class="muted">needs the permission "decide"</span>}
    </div>
  );
}
