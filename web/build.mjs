// Builds the page into src/refold/server/page/: hashed names, gzipped copies, limits on sizes, forbidden words.
// The output follows from the sources alone: two builds of one commit are equal byte for byte.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
const output = process.argv[2] ?? join(here, "../src/refold/server/page");

const FIRST_LOAD = 80 * 1024; // gzipped bytes of scripts and styles that a page needs before it shows something
const EDITOR = 150 * 1024; // gzipped bytes that the editor adds
const ALL = 1.2 * 1024 * 1024; // bytes of all files

// Text from logs and files becomes text nodes. Nothing in the sources may turn text into markup or code.
const FORBIDDEN = [
  "innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "document.write", "createContextualFragment",
  /\beval\s*\(/, /\bnew\s+Function\b/, /\bsrcdoc\b/, /javascript:/, /setAttribute\(\s*["']on/,
];

function files(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((each) => (each.isDirectory() ? files(join(folder, each.name)) : [join(folder, each.name)]))
    .sort();
}

function checkWords() {
  const found = [];
  for (const path of files(source)) {
    readFileSync(path, "utf8").split("\n").forEach((line, index) => {
      for (const word of FORBIDDEN) {
        if (typeof word === "string" ? line.includes(word) : word.test(line)) {
          found.push(`${relative(here, path)}:${index + 1}: ${word} is not allowed: use text nodes`);
        }
      }
    });
  }
  if (found.length) throw new Error(found.join("\n"));
}

const hash = (data) => createHash("sha256").update(data).digest("hex").slice(0, 10);
const gzip = (data) => {
  const packed = gzipSync(data, { level: 9 });
  packed[9] = 255; // the operating system is not part of the content
  return packed;
};

checkWords();

const shared = {
  bundle: true, write: false, minify: true, target: "es2022", charset: "utf8", legalComments: "none",
  absWorkingDir: here, logLevel: "warning", metafile: true,
};

// The worker comes first: its address is written into the scripts.
const worker = await build({ ...shared, entryPoints: ["src/graph/layout.worker.ts"], format: "iife", outdir: "out" });
const workerData = worker.outputFiles[0].contents;
const workerName = `layout-${hash(workerData)}.js`;

const scripts = await build({
  ...shared, entryPoints: ["src/main.tsx"], format: "esm", splitting: true, outdir: "out",
  entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]",
  jsx: "automatic", jsxImportSource: "preact",
  define: { LAYOUT_WORKER: JSON.stringify(workerName) },
});
const styles = await build({ ...shared, entryPoints: ["src/styles/page.css"], outdir: "out", entryNames: "[name]-[hash]" });

// The page of one run in a file that needs no server: everything in one script, and layouts without a worker.
const alone = {
  name: "alone",
  setup: (made) => {
    made.onResolve({ filter: /^\.\/layout$/ }, () => ({ path: join(source, "graph/layout-inline.ts") }));
    made.onResolve({ filter: /^\.\/later$/ }, () => ({ path: "later", namespace: "none" }));
    made.onLoad({ filter: /./, namespace: "none" }, () => ({ contents: "export {}" }));
  },
};
const file = await build({
  ...shared, entryPoints: ["src/file.tsx"], format: "iife", outdir: "out", jsx: "automatic", jsxImportSource: "preact",
  plugins: [alone],
});

const name = (path) => relative(join(here, "out"), path);
const made = new Map([[workerName, workerData]]);
for (const each of [...scripts.outputFiles, ...styles.outputFiles]) made.set(name(each.path), each.contents);

// What the entry needs before it runs: itself and everything that it imports at once.
const outputs = scripts.metafile.outputs;
const entry = Object.keys(outputs).find((path) => outputs[path].entryPoint === "src/main.tsx");
const first = new Set();
function need(path, into) {
  if (into.has(path)) return into;
  into.add(path);
  for (const each of outputs[path].imports) if (each.kind === "import-statement") need(each.path, into);
  return into;
}
need(entry, first);
const firstNames = [...first].map((path) => relative("out", path)).sort();
const styleName = name(styles.outputFiles[0].path);
const entryName = relative("out", entry);

const html = readFileSync(join(source, "index.html"), "utf8")
  .replace("<!--styles-->", `<link rel="stylesheet" href="assets/${styleName}">`)
  .replace("<!--scripts-->", [
    ...firstNames.filter((each) => each !== entryName).map((each) => `<link rel="modulepreload" href="assets/${each}">`),
    `<script type="module" src="assets/${entryName}"></script>`,
  ].join("\n"));

const packed = new Map([...made].map(([file, data]) => [file, gzip(data)]));
const firstLoad = [...firstNames, styleName].reduce((sum, file) => sum + packed.get(file).length, 0);
const editorEntry = Object.keys(outputs).find((path) => outputs[path].entryPoint?.includes("editor/"));
const editor = editorEntry
  ? [...need(editorEntry, new Set())].filter((path) => !first.has(path))
      .reduce((sum, path) => sum + packed.get(relative("out", path)).length, 0)
  : 0;
const all = [...made.values(), file.outputFiles[0].contents].reduce((sum, data) => sum + data.length, html.length);

const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
console.log(`first load ${kib(firstLoad)} of ${kib(FIRST_LOAD)} gzipped in ${firstNames.length + 1} files; ` +
  `editor ${kib(editor)} of ${kib(EDITOR)}; all ${kib(all)} of ${kib(ALL)}`);
if (firstLoad > FIRST_LOAD) throw new Error(`the first load is ${kib(firstLoad)}: at most ${kib(FIRST_LOAD)}`);
if (editor > EDITOR) throw new Error(`the editor is ${kib(editor)}: at most ${kib(EDITOR)}`);
if (all > ALL) throw new Error(`all files are ${kib(all)}: at most ${kib(ALL)}`);

rmSync(output, { recursive: true, force: true });
mkdirSync(join(output, "assets"), { recursive: true });
writeFileSync(join(output, "index.html"), html);
writeFileSync(join(output, "file.js"), file.outputFiles[0].contents);
writeFileSync(join(output, "file.css"), styles.outputFiles[0].contents);
for (const [file, data] of made) {
  writeFileSync(join(output, "assets", file), data);
  writeFileSync(join(output, "assets", `${file}.gz`), packed.get(file));
}
