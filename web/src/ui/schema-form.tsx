// A form made from a JSON Schema. Each value is kept as JSON text, so that a number is sent as it was typed.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { childrenOf, nodeOf } from "./json-text";
import { Button, IconButton } from "./parts";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minItems?: number;
  maxItems?: number;
}

/** JSON text; nothing means that the value is left out. */
export type Text = string | undefined;

/** What is wrong, by JSON pointer. */
export type Faults = Readonly<Record<string, string>>;

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const BROKEN = "\uE000"; // before what was typed and is no value yet, kept as a string
const LONG = 200; // characters, from which a text gets several lines

function typeOf(schema: Schema): string {
  const types = Array.isArray(schema.type) ? schema.type.filter((each) => each !== "null") : schema.type ? [schema.type] : [];
  if (types.length === 1) return types[0] as string;
  return schema.properties ? "object" : "";
}

/** What a form begins with: the defaults of the schema. */
export function beginning(schema: Schema): Text {
  if (schema.default !== undefined) return JSON.stringify(schema.default);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (typeOf(schema) !== "object" || !schema.properties) return undefined;
  const parts: Record<string, Text> = {};
  for (const [name, each] of Object.entries(schema.properties)) parts[name] = beginning(each);
  return written(parts);
}

function written(parts: Readonly<Record<string, Text>>): Text {
  const present = Object.entries(parts).filter((pair): pair is [string, string] => pair[1] !== undefined);
  return present.length ? `{${present.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}` : undefined;
}

function membersOf(text: Text): Record<string, Text> {
  if (text === undefined) return {};
  try {
    const node = nodeOf(text);
    if (node.kind !== "object") return {};
    return Object.fromEntries(childrenOf(node).map((each) => [each.key, each.node.text]));
  } catch {
    return {};
  }
}

function itemsOf(text: Text): string[] {
  if (text === undefined) return [];
  try {
    const node = nodeOf(text);
    return node.kind === "array" ? childrenOf(node).map((each) => each.node.text) : [];
  } catch {
    return [];
  }
}

const isBroken = (text: Text) => text?.startsWith(`"${BROKEN}`) ?? false;

/** What was typed, as JSON text if it is some. */
function typedText(value: string, isValue: (value: string) => boolean): Text {
  if (value === "") return undefined;
  return isValue(value) ? value : JSON.stringify(BROKEN + value);
}

function typedOf(text: Text): string {
  return text === undefined ? "" : isBroken(text) ? stringOf(text).slice(BROKEN.length) : text;
}

function isJson(value: string): boolean {
  try {
    JSON.parse(value);
    return true;
  } catch {
    return false;
  }
}

function stringOf(text: Text): string {
  if (text === undefined) return "";
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : text;
  } catch {
    return text;
  }
}

/** Check a value as far as a browser can; the server checks all of it. */
export function faultsOf(schema: Schema, text: Text, isRequired: boolean, pointer = ""): Record<string, string> {
  if (text === undefined) {
    if (!isRequired) return {};
    return typeOf(schema) === "object" && schema.properties ? faultsOfObject(schema, "{}", pointer) : { [pointer]: "this is needed" };
  }
  const found = (why: string) => ({ [pointer]: why });
  if (schema.enum && !schema.enum.some((each) => JSON.stringify(each) === text)) return found("choose one");
  const type = typeOf(schema);
  if (type === "object" && schema.properties) return faultsOfObject(schema, text, pointer);
  if (type === "array") return faultsOfArray(schema, text, pointer);
  if (type === "number" || type === "integer") {
    if (isBroken(text) || !NUMBER.test(text)) return found("this is not a number");
    const number = Number(text);
    if (type === "integer" && !Number.isInteger(number)) return found("this is not a whole number");
    if (schema.minimum !== undefined && number < schema.minimum) return found(`at least ${schema.minimum}`);
    if (schema.maximum !== undefined && number > schema.maximum) return found(`at most ${schema.maximum}`);
    if (schema.exclusiveMinimum !== undefined && number <= schema.exclusiveMinimum) return found(`more than ${schema.exclusiveMinimum}`);
    if (schema.exclusiveMaximum !== undefined && number >= schema.exclusiveMaximum) return found(`less than ${schema.exclusiveMaximum}`);
    return {};
  }
  if (type === "string") {
    const length = [...stringOf(text)].length;
    if (schema.minLength !== undefined && length < schema.minLength) return found(`at least ${schema.minLength} characters`);
    if (schema.maxLength !== undefined && length > schema.maxLength) return found(`at most ${schema.maxLength} characters`);
    return {};
  }
  return isBroken(text) ? found("this is not JSON") : {};
}

function faultsOfObject(schema: Schema, text: string, pointer: string): Record<string, string> {
  const members = membersOf(text);
  const found: Record<string, string> = {};
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    Object.assign(found, faultsOf(each, members[name], schema.required?.includes(name) ?? false, `${pointer}/${name}`));
  }
  return found;
}

function faultsOfArray(schema: Schema, text: string, pointer: string): Record<string, string> {
  const items = itemsOf(text);
  const found: Record<string, string> = {};
  if (schema.minItems !== undefined && items.length < schema.minItems) found[pointer] = `at least ${schema.minItems} entries`;
  if (schema.maxItems !== undefined && items.length > schema.maxItems) found[pointer] = `at most ${schema.maxItems} entries`;
  items.forEach((each, index) => Object.assign(found, faultsOf(schema.items ?? {}, each, true, `${pointer}/${index}`)));
  return found;
}

interface FieldProps {
  schema: Schema;
  text: Text;
  onChange: (text: Text) => void;
  faults: Faults;
  pointer?: string;
  name: string;
  isRequired?: boolean;
}

/** All fields of a schema; an object without a name is the form itself. */
export function SchemaForm(props: Omit<FieldProps, "name"> & { name?: string }) {
  const { schema, text, onChange, faults, pointer = "" } = props;
  if (typeOf(schema) !== "object" || !schema.properties) return <Field {...props} name={props.name ?? "value"} />;
  const members = membersOf(text);
  const isNeeded = (name: string) => schema.required?.includes(name) ?? false;
  const fields = Object.entries(schema.properties).sort(([a], [b]) => Number(isNeeded(b)) - Number(isNeeded(a)));
  return (
    <div class="form">
      {fields.map(([name, each]) => (
        <Field key={name} name={name} schema={each} text={members[name]} faults={faults} pointer={`${pointer}/${name}`}
          isRequired={isNeeded(name)}
          onChange={(next) => onChange(written({ ...members, [name]: next }) ?? "{}")} />
      ))}
    </div>
  );
}

function Field(props: FieldProps) {
  const { schema, text, onChange, faults, pointer = "", name, isRequired = false } = props;
  const id = useId();
  const type = typeOf(schema);
  const label = schema.title ?? name;
  if (type === "object" && schema.properties) {
    return (
      <fieldset class="fieldset">
        <legend>{label}{schema.description ? <span class="muted"> {schema.description}</span> : null}</legend>
        <SchemaForm schema={schema} text={text} onChange={onChange} faults={faults} pointer={pointer} />
      </fieldset>
    );
  }
  if (type === "array") return <ListField {...props} label={label} />;
  const fault = faults[pointer];
  const about = [schema.description, limitsOf(schema)].filter(Boolean).join("; ");
  return (
    <Labelled id={id} label={label} isRequired={isRequired} about={about} fault={fault}>
      <Input id={id} schema={schema} type={type} text={text} onChange={onChange} isBad={Boolean(fault)} isRequired={isRequired} />
    </Labelled>
  );
}

function limitsOf(schema: Schema): string {
  if (schema.minimum !== undefined && schema.maximum !== undefined) return `${schema.minimum} to ${schema.maximum}`;
  if (schema.minimum !== undefined) return `at least ${schema.minimum}`;
  if (schema.maximum !== undefined) return `at most ${schema.maximum}`;
  return "";
}

interface LabelledProps {
  id: string;
  label: string;
  isRequired: boolean;
  about?: string;
  fault?: string | undefined;
  children: ComponentChildren;
}

export function Labelled({ id, label, isRequired, about, fault, children }: LabelledProps) {
  return (
    <div class="form-row">
      <label for={id}>{label}{isRequired ? null : <span class="muted"> optional</span>}</label>
      {children}
      {fault ? <span class="fault" id={`${id}-about`} role="alert">{fault}</span> : about ? <span class="label" id={`${id}-about`}>{about}</span> : null}
    </div>
  );
}

interface InputProps {
  id: string;
  schema: Schema;
  type: string;
  text: Text;
  onChange: (text: Text) => void;
  isBad: boolean;
  isRequired: boolean;
}

function Input({ id, schema, type, text, onChange, isBad, isRequired }: InputProps) {
  const common = { id, "aria-invalid": isBad, "aria-describedby": `${id}-about`, "aria-required": isRequired };
  if (schema.enum) {
    return (
      <select class="select" {...common} value={text ?? ""} onChange={(event) => onChange(event.currentTarget.value || undefined)}>
        <option value="">choose …</option>
        {schema.enum.map((each) => {
          const value = JSON.stringify(each);
          return <option key={value} value={value}>{typeof each === "string" ? each : value}</option>;
        })}
      </select>
    );
  }
  if (type === "boolean") {
    return (
      <span class="row">
        <input type="checkbox" {...common} checked={text === "true"} onChange={(event) => onChange(String(event.currentTarget.checked))} />
        <span class="soft">{text === "true" ? "yes" : text === "false" ? "no" : "not said"}</span>
      </span>
    );
  }
  if (type === "number" || type === "integer") {
    return <input class="field" {...common} inputMode={type === "integer" ? "numeric" : "decimal"} value={typedOf(text)} onInput={(event) => onChange(typedText(event.currentTarget.value.trim(), (value) => NUMBER.test(value)))} />;
  }
  if (type === "string") {
    const said = (value: string) => onChange(value === "" ? undefined : JSON.stringify(value));
    if ((schema.maxLength ?? 0) > LONG || schema.format === "textarea") {
      return <textarea class="field" rows={4} {...common} value={stringOf(text)} onInput={(event) => said(event.currentTarget.value)} />;
    }
    const kind = schema.format === "date" ? ("date" as const) : ("text" as const);
    return <input class="field" {...common} {...({ type: kind } as object)} value={stringOf(text)} onInput={(event) => said(event.currentTarget.value)} />;
  }
  return <textarea class="field" rows={3} spellcheck={false} placeholder="JSON" {...common} value={typedOf(text)} onInput={(event) => onChange(typedText(event.currentTarget.value, isJson))} />;
}

function ListField({ schema, text, onChange, faults, pointer = "", label, isRequired = false }: FieldProps & { label: string }) {
  const items = itemsOf(text);
  const set = (next: string[]) => onChange(next.length || isRequired ? `[${next.join(",")}]` : undefined);
  const fault = faults[pointer];
  return (
    <fieldset class="fieldset">
      <legend>{label}{isRequired ? null : <span class="muted"> optional</span>}</legend>
      {items.map((each, index) => (
        <div class="row entry" key={index}>
          <div class="grow">
            <Field name={`${index + 1}`} schema={schema.items ?? {}} text={each} faults={faults} pointer={`${pointer}/${index}`} isRequired
              onChange={(next) => set(items.map((old, at) => (at === index ? (next ?? '""') : old)))} />
          </div>
          <IconButton icon="close" label={`Remove entry ${index + 1} of ${label}`} isSmall onClick={() => set(items.filter((_, at) => at !== index))} />
        </div>
      ))}
      {fault ? <span class="fault" role="alert">{fault}</span> : null}
      <div><Button isSmall onClick={() => set([...items, beginning(schema.items ?? {}) ?? emptyOf(schema.items ?? {})])}>Add an entry</Button></div>
    </fieldset>
  );
}

function emptyOf(schema: Schema): string {
  const empty: Record<string, string> = { object: "{}", array: "[]", boolean: "false", number: "0", integer: "0" };
  return empty[typeOf(schema)] ?? '""';
}
