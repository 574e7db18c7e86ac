// Text of programs: ANSI colours become classes, everything else below 0x20 is shown as a symbol.
import { shown } from "./json-text";

interface Piece {
  text: string;
  classes: string;
}

const CODE = /\u001b\[([\d;]*)m/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export function ansiPieces(text: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  let colour = "";
  let isBold = false;
  const push = (part: string) => {
    if (part) found.push({ text: shown(part), classes: [colour, isBold ? "bold" : ""].filter(Boolean).join(" ") });
  };
  for (const match of text.matchAll(CODE)) {
    push(text.slice(from, match.index));
    from = match.index + match[0].length;
    for (const code of (match[1] || "0").split(";").map(Number)) {
      if (code === 0) [colour, isBold] = ["", false];
      else if (code === 1) isBold = true;
      else if (code === 39) colour = "";
      else if (code >= 30 && code <= 37) colour = `ansi-${NAMES[code - 30]}`;
      else if (code >= 90 && code <= 97) colour = `ansi-${NAMES[code - 90]}`;
    }
  }
  push(text.slice(from));
  return found;
}

export function Ansi({ text, mark }: { text: string; mark?: string }) {
  return <>{ansiPieces(text).map((each, index) => <span key={index} class={each.classes || undefined}>{mark ? <Marked text={each.text} mark={mark} /> : each.text}</span>)}</>;
}

/** A text in which what was looked for is marked. */
export function Marked({ text, mark }: { text: string; mark: string }) {
  const parts: { text: string; is: boolean }[] = [];
  const low = text.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(mark.toLowerCase()); mark && at >= 0; at = low.indexOf(mark.toLowerCase(), from)) {
    parts.push({ text: text.slice(from, at), is: false }, { text: text.slice(at, at + mark.length), is: true });
    from = at + mark.length;
  }
  parts.push({ text: text.slice(from), is: false });
  return <>{parts.map((each, index) => (each.is ? <mark key={index}>{each.text}</mark> : each.text))}</>;
}
