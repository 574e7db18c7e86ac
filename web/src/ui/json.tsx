// Shows a value from its JSON text as a tree that opens lazily; more than 500 children are shown in parts.
import { useMemo, useState } from "preact/hooks";
import { childrenOf, type Node, nodeOf, pathText, pretty, shown } from "./json-text";
import { bytes, copy, count } from "./parts";
import { Icon } from "./icons";

const PART = 500; // children that are shown at once
const LONG = 2000; // characters of a string that are shown before it is opened
const OPEN_TO = 400; // characters of a value that is open at first, below the first level

interface BranchProps {
  name: string | number | null;
  node: Node;
  depth: number;
  keys: readonly (string | number)[];
  root: string;
  isLast: boolean;
}

function Branch({ name, node, depth, keys, root, isLast }: BranchProps) {
  const isTree = node.kind === "object" || node.kind === "array";
  const [isOpen, setOpen] = useState(isTree && (depth === 0 || node.text.length < OPEN_TO));
  const [most, setMost] = useState(PART);
  const [isWhole, setWhole] = useState(false);
  const children = useMemo(() => (isTree && isOpen ? childrenOf(node) : null), [node, isOpen]);
  const [open, close] = node.kind === "object" ? "{}" : "[]";
  const comma = isLast ? "" : ",";
  const isEmpty = isTree && /^.\s*.$/.test(node.text);
  const label = name === null ? null : <span class="key">{typeof name === "number" ? `${name}: ` : `${shown(JSON.stringify(name))}: `}</span>;
  const path = pathText(root, keys);
  const picks = (
    <>
      <button type="button" class="pick" onClick={() => void copy(path, `copied ${path}`)}>path</button>
      <button type="button" class="pick" onClick={() => void copy(`{{ ${path} }}`, "copied as a template")}>template</button>
      <button type="button" class="pick" onClick={() => void copy(pretty(node), "copied as JSON")}>JSON</button>
    </>
  );
  const style = { "--depth": String(depth) };
  if (!isTree || isEmpty) {
    const isLong = node.text.length > LONG && !isWhole;
    return (
      <div class="line" style={style}>
        <span>{label}<span class={isEmpty ? "more" : node.kind}>{shown(isLong ? node.text.slice(0, LONG) : node.text)}</span>
          {isLong ? <button type="button" class="btn small quiet" onClick={() => setWhole(true)}>… {count(node.text.length - LONG)} more characters</button> : null}{comma}</span>
        {picks}
      </div>
    );
  }
  return (
    <>
      <div class="line" style={style}>
        <button type="button" class="fold" aria-expanded={isOpen} aria-label={isOpen ? "Fold" : "Unfold"} onClick={() => setOpen(!isOpen)}>{isOpen ? "▼" : "▶"}</button>
        <span>{label}{open}{isOpen ? null : <><span class="more"> {summaryOf(node)} </span>{close}{comma}</>}</span>
        {picks}
      </div>
      {children?.slice(0, most).map((each, index) => {
        const key = node.kind === "array" ? index : each.key;
        return <Branch key={index} name={key} node={each.node} depth={depth + 1} keys={[...keys, key]} root={root} isLast={index === children.length - 1} />;
      })}
      {children && children.length > most ? (
        <div class="line" style={{ "--depth": String(depth + 1) }}>
          <button type="button" class="btn small quiet" onClick={() => setMost(most + PART)}>{count(children.length - most)} more</button>
        </div>
      ) : null}
      {isOpen ? <div class="line" style={style}><span>{close}{comma}</span></div> : null}
    </>
  );
}

function summaryOf(node: Node): string {
  if (node.text.length > 20_000) return bytes(node.text.length);
  const number = childrenOf(node).length;
  return node.kind === "object" ? `${number} ${number === 1 ? "key" : "keys"}` : `${number} ${number === 1 ? "item" : "items"}`;
}

/** `root` is how templates name the value, for paths that are copied. */
export function Json({ text, root = "", label }: { text: string; root?: string; label?: string }) {
  const node = useMemo(() => nodeOf(text), [text]);
  return <div class="json" role="group" aria-label={label ?? "value"} tabIndex={0}><Branch key={text.length} name={null} node={node} depth={0} keys={[]} root={root} isLast /></div>;
}

/** Data that came already parsed, such as a fact. */
export function JsonOf({ value, root = "", label }: { value: unknown; root?: string; label?: string }) {
  const text = useMemo(() => JSON.stringify(value) ?? "null", [value]);
  return <Json text={text} root={root} {...(label ? { label } : {})} />;
}

export function CopyJson({ text }: { text: string }) {
  return <button type="button" class="btn small quiet" onClick={() => void copy(pretty(nodeOf(text)), "copied as JSON")}><Icon name="copy" />Copy</button>;
}
