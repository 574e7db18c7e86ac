// What a JSON Schema allows at a place of a YAML text. Blocks only: inside of braces and brackets nothing is proposed.
export interface SchemaNode {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, SchemaNode>;
  additionalProperties?: SchemaNode | boolean;
  items?: SchemaNode | boolean;
  enum?: unknown[];
  const?: unknown;
  anyOf?: SchemaNode[];
  oneOf?: SchemaNode[];
  allOf?: SchemaNode[];
  then?: SchemaNode;
  else?: SchemaNode;
}

export interface YamlPlace {
  path: (string | number)[];
  isValue: boolean; // behind `key:`, else where a key stands
  present: Record<string, string>; // the keys of the same map, with their values as they are written
}

interface Frame {
  indent: number;
  key: string | number;
  members: Record<string, string>;
}

const LINE = /^(\s*)((?:-\s+)*)(?:(["']?)([\w.$/-]+)\3\s*:(?:\s+(.*))?)?$/;
const BLOCK = /^[|>][+-]?\d*$/; // text follows, which is no map

/** Where a position is: the keys that lead there. Nothing, if it is inside of text or of braces. */
export function pathAt(text: string, position: number): YamlPlace | null {
  const lines = text.slice(0, position).split("\n");
  const current = lines.pop() ?? "";
  const root: Frame = { indent: -1, key: "", members: {} };
  const frames: Frame[] = [root];
  const top = () => frames[frames.length - 1] as Frame;
  const leave = (is: (frame: Frame) => boolean) => {
    while (frames.length > 1 && is(top())) frames.pop();
  };
  const enter = (lead: number, dashes: string) => {
    for (let at = 0; at < dashes.length; at++) {
      if (dashes[at] !== "-") continue;
      const column = lead + at;
      leave((frame) => frame.indent > column || (frame.indent === column && typeof frame.key === "number"));
      frames.push({ indent: column, key: 0, members: {} });
    }
  };
  let textBelow = -1; // the column of a key whose value is a block of text
  for (const line of lines) {
    if (!line.trim() || line.trim().startsWith("#")) continue;
    const found = LINE.exec(line);
    const lead = line.length - line.trimStart().length;
    if (textBelow >= 0 && lead > textBelow) continue;
    textBelow = -1;
    if (!found) continue;
    const dashes = found[2] ?? "";
    enter(lead, dashes);
    const key = found[4];
    if (key === undefined) continue;
    const column = lead + dashes.length;
    const value = (found[5] ?? "").trim();
    leave((frame) => frame.indent >= column);
    top().members[key] = value;
    frames.push({ indent: column, key, members: {} });
    if (BLOCK.test(value)) textBelow = column;
  }
  const start = /^(\s*)((?:-\s+)*)/.exec(current);
  const lead = start?.[1]?.length ?? 0;
  const dashes = start?.[2] ?? "";
  if (textBelow >= 0 && lead > textBelow) return null;
  const rest = current.slice(lead + dashes.length);
  if (/[{[]/.test(rest)) return null;
  enter(lead, dashes);
  const column = lead + dashes.length;
  leave((frame) => frame.indent >= column);
  const path = frames.slice(1).map((frame) => frame.key);
  const present = { ...top().members };
  const written = /^(["']?)([\w.$/-]+)\1\s*:\s+/.exec(rest);
  if (written) return { path: [...path, written[2] as string], isValue: true, present };
  for (const line of text.slice(position).split("\n").slice(1)) {
    const found = LINE.exec(line);
    if (!line.trim() || !found) continue;
    const at = line.length - line.trimStart().length;
    if (at < column || found[2]) break;
    if (at === column && found[4]) present[found[4]] = (found[5] ?? "").trim();
  }
  return { path, isValue: false, present };
}

const DEEPEST = 40; // references in a row

function resolved(root: SchemaNode, node: SchemaNode | boolean | undefined, depth = 0): SchemaNode[] {
  if (!node || node === true || depth > DEEPEST) return [];
  const parts: SchemaNode[] = [node];
  if (node.$ref?.startsWith("#/")) {
    const found = node.$ref.slice(2).split("/").reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], root);
    parts.push(...resolved(root, found as SchemaNode, depth + 1));
  }
  for (const each of [...(node.anyOf ?? []), ...(node.oneOf ?? []), ...(node.allOf ?? []), node.then, node.else]) parts.push(...resolved(root, each, depth + 1));
  return parts;
}

function nodesAt(root: SchemaNode, path: readonly (string | number)[]): SchemaNode[] {
  let nodes = resolved(root, root);
  for (const key of path) {
    const next = nodes.flatMap((node) => {
      if (typeof key === "number") return resolved(root, node.items);
      if (node.properties?.[key]) return resolved(root, node.properties[key]);
      return typeof node.additionalProperties === "object" ? resolved(root, node.additionalProperties) : [];
    });
    nodes = [...new Set(next)];
  }
  return nodes;
}

/** Whether a branch of the schema is that of the values that are there, such as `kind: http`. */
function fits(node: SchemaNode, present: Readonly<Record<string, string>>): boolean {
  return Object.entries(node.properties ?? {}).every(([name, each]) => {
    const written = present[name]?.replace(/^["']|["']$/g, "");
    if (!written || written.includes("{")) return true;
    const allowed = each.const !== undefined ? [each.const] : each.enum;
    return !allowed || allowed.map(String).includes(written);
  });
}

export function propertiesAt(root: SchemaNode, path: readonly (string | number)[], present: Readonly<Record<string, string>>): { name: string; about: string }[] {
  const found = new Map<string, string>();
  for (const node of nodesAt(root, path)) {
    if (!fits(node, present)) continue;
    for (const [name, each] of Object.entries(node.properties ?? {})) {
      if (!(name in present) && !found.has(name)) found.set(name, each.description ?? "");
    }
  }
  return [...found].map(([name, about]) => ({ name, about }));
}

export function valuesAt(root: SchemaNode, path: readonly (string | number)[]): string[] {
  const found = new Set<string>();
  for (const node of nodesAt(root, path)) {
    if (node.const !== undefined) found.add(String(node.const));
    for (const each of node.enum ?? []) found.add(String(each));
    if (node.type === "boolean") found.add("true").add("false");
  }
  return [...found];
}
