// What a run has used, with its budget, and where its time went.
import { get, runPath } from "../api/client";
import { useResource } from "../api/resource";
import { Empty, Part, count } from "../ui/parts";
import type { RunModel } from "./model";
import { TimeSpent } from "./timeline";

export function Usage({ model }: { model: RunModel }) {
  const head = model.head.value?.head ?? 0;
  const found = useResource(`${model.id}|${head}`, (abort) => get<{ usage: Record<string, number>; budget: Record<string, number> }>(runPath(model.id, "usage"), {}, abort), true);
  return (
    <div class="scroll grow pad-top" tabIndex={0} role="region" aria-label="Usage">
      <TimeSpent model={model} />
      <h3 class="section">Ledger</h3>
      <Part of={found.state.value} lines={2}>{({ usage, budget }) => {
        const units = [...new Set([...Object.keys(usage), ...Object.keys(budget)])].sort();
        if (!units.length) return <Empty title="No tool has reported what it used."><p>Models report tokens and money; tools of your own report what you like.</p></Empty>;
        return (
          <table class="plain fit"><thead><tr><th>unit</th><th class="num">used</th><th class="num">budget</th><th /></tr></thead>
            <tbody>{units.map((unit) => {
              const used = usage[unit] ?? 0;
              const limit = budget[unit];
              return <tr key={unit}><td>{unit}</td><td class="num">{count(used)}</td><td class="num">{limit === undefined ? "-" : count(limit)}</td>
                <td>{limit ? <span class={`bar wide tone-${used > limit ? "failed" : "running"}`}><i style={{ width: `${Math.min(100, (used / limit) * 100)}%` }} /></span> : null}</td></tr>;
            })}</tbody>
          </table>
        );
      }}</Part>
    </div>
  );
}
