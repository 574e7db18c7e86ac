// The editor of playbooks, loaded when it is opened: YAML, completion from the schema, checks by the server.
import { autocompletion, closeBrackets, closeBracketsKeymap, type Completion, type CompletionContext, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, linter, lintKeymap } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { pathAt, propertiesAt, type SchemaNode, valuesAt } from "./complete";

export interface Flaw {
  detail: string;
  line?: number;
  column?: number;
  code?: string;
  hint?: string;
}

export interface EditorOptions {
  text: string;
  label: string;
  isReadOnly: boolean;
  schema: () => SchemaNode | null;
  check: (text: string) => Promise<readonly Flaw[]>;
  onChange: (text: string) => void;
}

export interface Editor {
  goTo: (line: number, column: number) => void;
  close: () => void;
}

const DELAY = 400; // milliseconds of silence before the text is checked

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: tags.string, color: "var(--completed)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--paused)" },
  { tag: tags.comment, color: "var(--ink-3)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.meta], color: "var(--ink-2)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "12px", backgroundColor: "var(--surface)", color: "var(--ink)", maxHeight: "68vh" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "19px", minHeight: "320px" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--ink-3)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px" },
  ".cm-selectionBackground, &.cm-focused .cm-selectionBackground": { backgroundColor: "var(--selected) !important" },
  ".cm-tooltip, .cm-panels": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--rule-strong)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--selected)", color: "var(--ink)" },
  ".cm-completionInfo": { maxWidth: "360px", whiteSpace: "normal" },
  ".cm-diagnostic": { padding: "6px 10px", whiteSpace: "pre-wrap" },
});

export function openEditor(parent: HTMLElement, options: EditorOptions): Editor {
  const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")?.content ?? "";
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        EditorView.cspNonce.of(nonce),
        lineNumbers(), highlightActiveLineGutter(), foldGutter(), history(), drawSelection(), indentOnInput(),
        indentUnit.of("  "), bracketMatching(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(),
        yaml(), syntaxHighlighting(colours), look, lintGutter(),
        autocompletion({ override: [(context) => completions(context, options.schema())] }),
        linter((at) => diagnostics(at, options.check), { delay: DELAY }),
        EditorState.readOnly.of(options.isReadOnly),
        EditorView.contentAttributes.of({ "aria-label": options.label, tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) options.onChange(update.state.doc.toString());
        }),
        // Escape and then Tab leaves the editor by the keyboard.
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
      ],
    }),
  });
  return {
    goTo: (line, column) => {
      view.dispatch({ selection: { anchor: placeOf(view, line, column) }, scrollIntoView: true });
      view.focus();
    },
    close: () => view.destroy(),
  };
}

function placeOf(view: EditorView, line = 1, column = 1): number {
  const found = view.state.doc.line(Math.max(1, Math.min(view.state.doc.lines, line)));
  return Math.min(found.to, found.from + Math.max(0, column - 1));
}

async function diagnostics(view: EditorView, check: EditorOptions["check"]): Promise<Diagnostic[]> {
  const flaws = await check(view.state.doc.toString());
  return flaws.map((flaw) => {
    const from = placeOf(view, flaw.line, flaw.column);
    const to = Math.max(from, Math.min(view.state.doc.lineAt(from).to, endOfWord(view, from)));
    const message = [flaw.detail, flaw.hint].filter(Boolean).join("\n");
    return { from, to, severity: "error", message, ...(flaw.code ? { source: flaw.code } : {}) };
  });
}

function endOfWord(view: EditorView, from: number): number {
  const rest = view.state.doc.sliceString(from, view.state.doc.lineAt(from).to);
  return from + (/^[\w./-]+/.exec(rest)?.[0].length ?? 1);
}

function completions(context: CompletionContext, schema: SchemaNode | null) {
  const word = context.matchBefore(/[\w.-]*/);
  if (!schema || !word || (word.from === word.to && !context.explicit)) return null;
  const place = pathAt(context.state.doc.toString(), word.from);
  if (!place) return null;
  const options: Completion[] = place.isValue
    ? valuesAt(schema, place.path).map((label) => ({ label, type: "enum" }))
    : propertiesAt(schema, place.path, place.present).map(({ name, about }) => ({ label: name, type: "property", apply: `${name}: `, ...(about ? { info: about } : {}) }));
  return options.length ? { from: word.from, options, validFor: /^[\w.-]*$/ } : null;
}
