// Draws, with the code of the page, the rows after every fact of the logs in a file, in several orders, and prints them.
// node frames.mjs FILE.json: {logs: [{head, pieces: [{after, keyframe, frames}]}]} -> {logs: [{forwards, jumping}]}
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [web, source, target] = process.argv.slice(2);
const { transformSync } = createRequire(pathToFileURL(`${web}/package.json`))("esbuild");
const code = transformSync(readFileSync(`${web}/src/run/frames.ts`, "utf8"), { loader: "ts", format: "esm" }).code;
const { Frames } = await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`);

function draw(pieces, numbers) {
  const frames = new Frames();
  for (const each of structuredClone(pieces)) frames.add(each);
  return numbers.map((number) => {
    const moment = frames.at(number);
    return moment && { number, status: moment.status, rows: structuredClone(moment.rows), at: moment.at };
  });
}

const logs = JSON.parse(readFileSync(source, "utf8")).map(({ head, pieces }) => {
  const forwards = Array.from({ length: head }, (_, index) => index + 1);
  const jumping = [...forwards].sort((a, b) => ((a * 7919) % 101) - ((b * 7919) % 101) || b - a);
  const jumped = draw(pieces, jumping);
  return { forwards: draw(pieces, forwards), jumping: forwards.map((number) => jumped[jumping.indexOf(number)]) };
});
writeFileSync(target, JSON.stringify(logs));
