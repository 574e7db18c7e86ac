// The values of a run: its input, its context, its result. At a moment of the past the context is that of the moment.
import { ask, link, may, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { childrenOf, nodeOf } from "../ui/json-text";
import { Empty, Part } from "../ui/parts";
import type { RunModel } from "./model";
import { Value, type ValuePart } from "./steps";

function useValue(model: RunModel, name: "input" | "result" | "context", key: string) {
  return useResource(key, (abort) => ask<ValuePart>(runPath(model.id, name), { query: { values: "text" }, signal: abort }), true);
}

export function Data({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const at = model.at.value;
  const isAllowed = may("values");
  const input = useValue(model, "input", isAllowed ? model.id : "");
  const result = useValue(model, "result", isAllowed && at === null ? `${model.id}|${head}` : "");
  const context = useResource<ValuePart>(isAllowed ? `${model.id}|${at ?? head}` : "", async (abort) => {
    if (at === null) return (await ask<ValuePart>(runPath(model.id, "context"), { query: { values: "text" }, signal: abort })).data;
    const answer = await ask<unknown>(runPath(model.id, "at", at), { signal: abort });
    const part = childrenOf(nodeOf(answer.text)).find((each) => each.key === "context");
    return { text: part?.node.text ?? "{}" };
  }, true);
  if (!isAllowed) return <Empty title="These are values."><p>You need the permission "values" to see them.</p></Empty>;
  const download = (name: string) => link(runPath(model.id, name), { values: "download" });
  return (
    <div class="scroll grow data-grid" tabIndex={0} role="region" aria-label="Values">
      <Part of={input.state.value}>{(value) => <Value title="Input" value={value} root="workload" download={download("input")} />}</Part>
      <Part of={context.state.value}>{(value) => <Value title={at === null ? "Context" : "Context at this moment"} value={value} root="ctx" download={download("context")} />}</Part>
      {at === null ? <Part of={result.state.value}>{(value) => <Value title="Result" value={value} root="result" download={download("result")} />}</Part> : null}
    </div>
  );
}
