// Reads JSON text without turning numbers into floating point: `9007199254740993` and `1e300` stay as they are written.
export type Token = "str" | "num" | "lit";

/** A value with its text. Children are read when they are asked for. */
export interface Node {
  kind: "object" | "array" | Token;
  text: string; // a scalar as it stands; for objects and arrays the whole text
}

export interface Child {
  key: string; // as text without quotes for objects, the index for arrays
  node: Node;
}

/** Find the end of the value that begins at `from`. The text is valid JSON, for the server has written it. */
function endOf(text: string, from: number): number {
  const first = text[from];
  if (first === '"') return endOfString(text, from);
  if (first === "{" || first === "[") {
    let depth = 0;
    for (let at = from; at < text.length; at++) {
      const sign = text[at];
      if (sign === '"') at = endOfString(text, at) - 1;
      else if (sign === "{" || sign === "[") depth++;
      else if (sign === "}" || sign === "]") if (--depth === 0) return at + 1;
    }
    return text.length;
  }
  let at = from;
  while (at < text.length && !/[\s,\]}]/.test(text[at] as string)) at++;
  return at;
}

function endOfString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

function skip(text: string, at: number): number {
  while (at < text.length && /[\s,:]/.test(text[at] as string)) at++;
  return at;
}

export function nodeOf(text: string): Node {
  const from = skip(text, 0);
  const part = text.slice(from, endOf(text, from));
  const first = part[0];
  if (first === "{") return { kind: "object", text: part };
  if (first === "[") return { kind: "array", text: part };
  if (first === '"') return { kind: "str", text: part };
  return { kind: first === "t" || first === "f" || first === "n" ? "lit" : "num", text: part };
}

/** The members of an object or the elements of an array, in their order; equal keys stay. */
export function childrenOf(node: Node): Child[] {
  const found: Child[] = [];
  const text = node.text;
  let at = skip(text, 1);
  while (at < text.length - 1) {
    let key = String(found.length);
    if (node.kind === "object") {
      const end = endOfString(text, at);
      key = JSON.parse(text.slice(at, end)) as string;
      at = skip(text, end);
    }
    const end = endOf(text, at);
    found.push({ key, node: nodeOf(text.slice(at, end)) });
    at = skip(text, end);
  }
  return found;
}

/** A path to copy: `steps.fetch.result.items[3]`. */
export function pathText(root: string, keys: readonly (string | number)[]): string {
  return keys.reduce<string>((path, key) => {
    if (typeof key === "number") return `${path}[${key}]`;
    if (/^[A-Za-z_]\w*$/.test(key)) return path ? `${path}.${key}` : key;
    return `${path}[${JSON.stringify(key)}]`;
  }, root);
}

/** Each string of a text with everything below 0x20 shown as a symbol. */
export function shown(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (sign) => (sign === "\u007f" ? "␡" : String.fromCharCode(0x2400 + sign.charCodeAt(0))));
}

/** The text of a value, indented, with every scalar as it was. */
export function pretty(node: Node, indent = 0): string {
  if (node.kind !== "object" && node.kind !== "array") return node.text;
  const children = childrenOf(node);
  const [open, close] = node.kind === "object" ? "{}" : "[]";
  if (!children.length) return `${open}${close}`;
  const pad = "  ".repeat(indent + 1);
  const lines = children.map((each) => pad + (node.kind === "object" ? `${JSON.stringify(each.key)}: ` : "") + pretty(each.node, indent + 1));
  return `${open}\n${lines.join(",\n")}\n${"  ".repeat(indent)}${close}`;
}
