// Who works, and what waits for them.
import { useEffect } from "preact/hooks";
import { get, inNamespace, post } from "../api/client";
import { useResource } from "../api/resource";
import { subscribe } from "../api/stream";
import { place, runHref } from "../app/router";
import { askFor, Button, CommandLine, count, Empty, notify, Part } from "../ui/parts";
import { Status } from "../ui/status";
import { Moment } from "../ui/time";

interface Worker {
  worker: string;
  queues: string[] | null;
  tools: number | null;
  leases: { run: string; command: string }[];
  beat_at: string | null;
  is_remote: boolean;
  slots: number | null;
  version: string | null;
  draining: boolean;
}

interface Queue {
  queue: string;
  depth: number;
  leased?: number;
  oldest: string | null;
}

const SHOWN = 6; // commands of a worker that are listed
const AGAIN = 5000; // milliseconds

export default function Workers() {
  const workers = useResource<{ items: Worker[] }>(place.value.ns, (abort) => get(inNamespace("workers"), {}, abort), true);
  const queues = useResource<{ items: Queue[] }>(place.value.ns, (abort) => get(inNamespace("queues"), {}, abort), true);
  useEffect(() => {
    const reload = () => {
      if (document.hidden) return;
      workers.reload();
      queues.reload();
    };
    const timer = setInterval(reload, AGAIN);
    const leave = subscribe("overview", reload);
    return () => {
      clearInterval(timer);
      leave();
    };
  }, []);
  const all = workers.state.value.data?.items ?? [];
  const takes = (queue: string) => all.filter((each) => each.queues === null || each.queues.includes(queue));
  return (
    <div class="page" data-page="workers">
      <div class="page-head"><h1>Workers and queues</h1></div>
      <section class="card" aria-label="Queues">
        <header><h2>Queues</h2><span class="muted">work that is free to be taken</span></header>
        <Part of={queues.state.value} lines={2}>
          {({ items }) => items.length ? (
            <div class="table-scroll" tabIndex={0}><table class="plain">
              <thead><tr><th>Queue</th><th class="num">Waiting</th><th class="num">Taken</th><th>Oldest</th><th>Who could take it</th></tr></thead>
              <tbody>
                {items.map((queue) => {
                  const able = takes(queue.queue);
                  return (
                    <tr key={queue.queue}>
                      <td class="strong">{queue.queue || "default"}</td>
                      <td class="num">{count(queue.depth)}</td>
                      <td class="num">{queue.leased === undefined ? "-" : count(queue.leased)}</td>
                      <td><Moment at={queue.oldest} relative /></td>
                      <td>{able.length ? `${count(able.length)} ${able.length === 1 ? "worker" : "workers"}` : <Status status="stuck">nobody: start a worker for this queue</Status>}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table></div>
          ) : <Empty title="Nothing waits in a queue." />}
        </Part>
      </section>
      <section class="card" aria-label="Workers">
        <header><h2>Workers</h2><span class="muted">{all.length ? `${count(all.length)} alive` : ""}</span></header>
        <Part of={workers.state.value} lines={3}>
          {({ items }) => items.length ? (
            <div class="table-scroll" tabIndex={0}><table class="plain">
              <thead><tr><th>Worker</th><th>Takes from</th><th class="num">Tools</th><th>Does now</th><th>Last beat</th><th><span class="sr">Actions</span></th></tr></thead>
              <tbody>
                {items.map((worker) => (
                  <tr key={worker.worker}>
                    <td class="strong">{worker.worker}{worker.version ? <span class="muted"> {worker.version}</span> : null}{worker.draining ? <span class="badge tone-paused">takes no more</span> : null}</td>
                    <td>{worker.queues === null ? "every queue" : worker.queues.join(", ") || "no queue"}</td>
                    <td class="num">{worker.tools === null ? "all" : count(worker.tools)}</td>
                    <td><Leases leases={worker.leases} slots={worker.slots} /></td>
                    <td><Moment at={worker.beat_at} relative /></td>
                    <td class="num"><Button isSmall needs="operate" why={whyNoDrain(worker)} label={`Drain ${worker.worker}`} onClick={() => drain(worker, workers.reload)}>Drain</Button></td>
                  </tr>
                ))}
              </tbody>
            </table></div>
          ) : (
            <Empty title="No worker is alive."><span>Nothing is executed until one is started:</span><CommandLine text="refold worker" /></Empty>
          )}
        </Part>
      </section>
    </div>
  );
}

/** Why a worker cannot be told to take no more, or nothing. */
function whyNoDrain(worker: Worker): string {
  if (!worker.is_remote) return "it works next to the database: end its process with a signal";
  return worker.draining ? "it was told already" : "";
}

function drain(worker: Worker, onDone: () => void): void {
  const held = worker.leases.length;
  askFor({
    title: `Drain ${worker.worker}`,
    body: () => <p>It takes no more work and ends. {held ? `The ${held === 1 ? "command" : `${count(held)} commands`} that it has now ${held === 1 ? "is" : "are"} finished, or handed back for others.` : "It has nothing at the moment."}</p>,
    actions: [{
      label: "Drain", kind: "danger", do: async () => {
        await post(inNamespace("workers", worker.worker, "drain")).then(() => notify(`${worker.worker} takes no more`), (error: Error) => notify(error.message, true));
        onDone();
      },
    }],
  });
}

function Leases({ leases, slots }: { leases: Worker["leases"]; slots: number | null }) {
  if (!leases.length) return <span class="muted">nothing{slots ? ` of ${slots}` : ""}</span>;
  return (
    <span class="chips">
      {slots ? <span class="soft">{leases.length} of {slots}:</span> : null}
      {leases.slice(0, SHOWN).map((lease) => <a key={lease.command} class="chip" href={runHref(lease.run)}>{lease.command.split("/").slice(-3).join("/") || lease.run.slice(0, 8)}</a>)}
      {leases.length > SHOWN ? <span class="muted">and {count(leases.length - SHOWN)} more</span> : null}
    </span>
  );
}
