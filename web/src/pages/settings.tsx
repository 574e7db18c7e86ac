// Tokens, who did what, what the server is, and what this browser prefers.
import { useState } from "preact/hooks";
import { ask, get, inNamespace, may, me } from "../api/client";
import { useResource } from "../api/resource";
import { version } from "../api/stream";
import { keysAreShown } from "../app/palette";
import { prefer, preferences, type Theme } from "../app/preferences";
import { choose, href, place, runHref } from "../app/router";
import { askFor, Button, bytes, CommandLine, copy, count, Dialog, Empty, notify, Part, quoted } from "../ui/parts";
import { Labelled } from "../ui/schema-form";
import { Moment, zoneName } from "../ui/time";

interface Token {
  id: string;
  name: string;
  role: string;
  permissions: string[];
  workflows: string[] | null;
  created_at: string | null;
  expires_at: string | null;
  used_at: string | null;
}

interface AuditRow {
  number: number;
  at: string;
  by: string;
  token: string;
  address: string;
  action: string;
  target: string;
  result: number;
  request: string;
}

const ROLES: Record<string, string> = {
  viewer: "sees statuses and times, and no values",
  operator: "sees values, starts and steers runs",
  author: "and stores workflows",
  approver: "sees values and decides gates",
  worker: "executes runs, and nothing else",
  admin: "may do everything, and makes tokens",
};
const TABS: readonly [string, string][] = [["", "This browser"], ["tokens", "Tokens"], ["audit", "Audit"], ["server", "Server"]];
const ZONES = ["local", "UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"];

export default function Settings() {
  const { tab = "" } = place.value.query;
  return (
    <div class="page" data-page="settings">
      <div class="page-head"><h1>Settings</h1></div>
      <div class="tabs" role="tablist">
        {TABS.map(([name, title]) => <a key={name} role="tab" aria-selected={tab === name} href={href("settings", { tab: name })}>{title}</a>)}
      </div>
      {tab === "tokens" ? <Tokens /> : tab === "audit" ? <Audit /> : tab === "server" ? <Server /> : <Browser />}
    </div>
  );
}

function Browser() {
  const now = preferences.value;
  return (
    <section class="card" aria-label="This browser">
      <header><h2>This browser</h2><span class="muted">kept here, and nowhere else</span></header>
      <div class="body form">
        <Labelled id="theme" label="Theme" isRequired>
          <select class="select" id="theme" value={now.theme} onChange={(event) => prefer({ theme: event.currentTarget.value as Theme })}>
            <option value="system">as the system</option><option value="light">light</option><option value="dark">dark</option>
          </select>
        </Labelled>
        <Labelled id="zone" label="Time zone of all times" isRequired about={`now ${zoneName.value}`}>
          <select class="select" id="zone" value={now.zone} onChange={(event) => prefer({ zone: event.currentTarget.value })}>
            {[...new Set([...ZONES, now.zone])].map((each) => <option key={each} value={each}>{each === "local" ? "that of this computer" : each}</option>)}
          </select>
        </Labelled>
        <Labelled id="other-zone" label="Another zone" isRequired={false} about="a name such as Africa/Nairobi">
          <input class="field" id="other-zone" onChange={(event) => setZone(event.currentTarget.value.trim())} />
        </Labelled>
      </div>
      <div class="body row buttons"><Button onClick={() => (keysAreShown.value = true)}>Keys of the keyboard</Button></div>
    </section>
  );
}

function setZone(name: string): void {
  if (!name) return;
  try {
    new Intl.DateTimeFormat("en-GB", { timeZone: name });
    prefer({ zone: name });
  } catch {
    notify(`there is no time zone ${name}`, true);
  }
}

function Tokens() {
  const tokens = useResource<{ items: Token[] }>(may("administer") ? place.value.ns : "", (abort) => get(inNamespace("tokens"), {}, abort));
  const [isMaking, setMaking] = useState(false);
  if (!may("administer")) return <Missing what="Tokens are" />;
  const revoke = (token: Token) => askFor({
    title: `Revoke the token ${token.name}`,
    body: () => (
      <>
        <p>Programs that use it are refused at once, browsers that it has signed in are signed out, and its streams end within 5 seconds. {token.used_at ? <>It was last used <Moment at={token.used_at} relative />.</> : "It was never used."}</p>
        <CommandLine text={`refold token revoke ${token.id}`} />
      </>
    ),
    actions: [{
      label: "Revoke", kind: "danger", do: async () => {
        await ask(inNamespace("tokens", token.id), { method: "DELETE" }).then(() => notify(`${token.name} is revoked`), (error: Error) => notify(error.message, true));
        tokens.reload();
      },
    }],
  });
  return (
    <section class="card" aria-label="Tokens">
      <header><h2>Tokens</h2><span class="muted">a token is a person or a program; what it does is recorded under its name</span><span class="spacer" />
        <Button needs="administer" kind="primary" isSmall onClick={() => setMaking(true)}>New token</Button></header>
      <Part of={tokens.state.value}>
        {({ items }) => items.length ? (
          <div class="table-scroll" tabIndex={0}><table class="plain">
            <thead><tr><th>Name</th><th>Role</th><th>Workflows</th><th>Last used</th><th>Expires</th><th>Made</th><th><span class="sr">Actions</span></th></tr></thead>
            <tbody>
              {items.map((token) => (
                <tr key={token.id}>
                  <td class="strong">{token.name} <code class="muted">{token.id}</code></td>
                  <td title={token.permissions.join(", ")}>{token.role}</td>
                  <td>{token.workflows === null ? "all" : token.workflows.join(", ")}</td>
                  <td>{token.used_at ? <Moment at={token.used_at} relative /> : <span class="muted">never</span>}</td>
                  <td>{token.expires_at ? <Moment at={token.expires_at} /> : <span class="muted">never</span>}</td>
                  <td><Moment at={token.created_at} /></td>
                  <td class="num"><Button isSmall kind="danger" needs="administer" onClick={() => revoke(token)} label={`Revoke the token ${token.name} ${token.id}`}>Revoke</Button></td>
                </tr>
              ))}
            </tbody>
          </table></div>
        ) : <Empty title="There are no tokens." />}
      </Part>
      {isMaking ? <NewToken onClose={() => { setMaking(false); tokens.reload(); }} /> : null}
    </section>
  );
}

function NewToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("operator");
  const [expires, setExpires] = useState("90d");
  const [workflows, setWorkflows] = useState("");
  const [decides, setDecides] = useState(false);
  const [made, setMade] = useState("");
  const [error, setError] = useState("");
  const only = workflows.split(",").map((each) => each.trim()).filter(Boolean);
  const create = () => {
    ask<{ token: string }>(inNamespace("tokens"), { method: "POST", body: { name, role, plus: decides ? ["decide"] : [], workflows: only.length ? only : null, expires } })
      .then((answer) => setMade(answer.data.token), (problem: Error) => setError(problem.message));
  };
  if (made) {
    return (
      <Dialog title={`The token ${name}`} onClose={onClose} footer={<><Button onClick={() => void copy(made, "token copied")}>Copy</Button><Button kind="primary" onClick={onClose}>Done</Button></>}>
        <p>This is the only time that it is shown. The server keeps a hash of it.</p>
        <div class="secret">{made}</div>
      </Dialog>
    );
  }
  const command = `refold token create ${quoted(name || "NAME")} --role ${role}${decides ? " --plus decide" : ""}${only.map((each) => ` --workflow ${quoted(each)}`).join("")} --expires ${expires}`;
  return (
    <Dialog title="New token" onClose={onClose} footer={<><Button kind="quiet" onClick={onClose}>Close</Button><Button kind="primary" needs="administer" why={name.trim() ? "" : "it needs a name"} onClick={create}>Create</Button></>}>
      <Labelled id="token-name" label="Name" isRequired about="who does things with it; it is recorded with each">
        <input class="field" id="token-name" value={name} maxLength={100} onInput={(event) => setName(event.currentTarget.value)} />
      </Labelled>
      <Labelled id="token-role" label="Role" isRequired about={ROLES[role] ?? ""}>
        <select class="select" id="token-role" value={role} onChange={(event) => setRole(event.currentTarget.value)}>
          {Object.keys(ROLES).map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
      </Labelled>
      {role === "operator" || role === "author" ? (
        <label class="row"><input type="checkbox" checked={decides} onChange={(event) => setDecides(event.currentTarget.checked)} /> may also decide gates</label>
      ) : null}
      <Labelled id="token-workflows" label="Only these workflows" isRequired={false} about="names with commas between them; runs of others do not exist for it">
        <input class="field" id="token-workflows" value={workflows} onInput={(event) => setWorkflows(event.currentTarget.value)} />
      </Labelled>
      <Labelled id="token-expires" label="Expires after" isRequired>
        <select class="select" id="token-expires" value={expires} onChange={(event) => setExpires(event.currentTarget.value)}>
          {["1d", "7d", "30d", "90d", "365d", "never"].map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
      </Labelled>
      {error ? <p class="fault" role="alert">{error}</p> : null}
      <CommandLine text={command} />
    </Dialog>
  );
}

function Missing({ what }: { what: string }) {
  return <div class="card"><Empty title={`${what} for administrators.`}><span>You are {me.value?.name} with the role {me.value?.role}, and need the permission "administer".</span></Empty></div>;
}

const AUDIT_ROWS = 200;

function Audit() {
  const after = Number(place.value.query["after"] ?? 0);
  const rows = useResource<{ items: AuditRow[]; more: boolean }>(may("administer") ? `${place.value.ns}|${after}` : "", (abort) => get(inNamespace("audit"), { after, limit: AUDIT_ROWS }, abort), true);
  if (!may("administer")) return <Missing what="The audit log is" />;
  return (
    <section class="card" aria-label="Audit">
      <header><h2>Audit</h2><span class="muted">who did what, the oldest first; each row carries the hash of the one before</span></header>
      <Part of={rows.state.value}>
        {({ items, more }) => items.length ? (
          <>
            <div class="table-scroll" tabIndex={0}><table class="plain">
              <thead><tr><th class="num">Number</th><th>When</th><th>Who</th><th>Did</th><th>To</th><th class="num">Result</th><th>From</th></tr></thead>
              <tbody>
                {items.map((row) => (
                  <tr key={row.number}>
                    <td class="num muted">{count(row.number)}</td>
                    <td><Moment at={row.at} /></td>
                    <td>{row.by || <span class="muted">nobody known</span>}</td>
                    <td><code>{row.action.replace("/api/v1/ns/{ns}", "")}</code></td>
                    <td><Target text={row.target} /></td>
                    <td class={`num ${row.result >= 400 ? "fault" : ""}`}>{row.result}</td>
                    <td class="muted">{row.address}</td>
                  </tr>
                ))}
              </tbody>
            </table></div>
            <div class="more-row row">
              {after ? <Button onClick={() => choose({ after: null })}>From the beginning</Button> : null}
              {more ? <Button onClick={() => choose({ after: items[items.length - 1]?.number })}>Newer rows</Button> : null}
            </div>
          </>
        ) : <Empty title="Nothing was recorded yet."><span>A server that only reads keeps no audit log.</span></Empty>}
      </Part>
      <div class="body"><CommandLine text="refold audit verify" /></div>
    </section>
  );
}

function Target({ text }: { text: string }) {
  const run = /^[0-9a-f]{32}/.exec(text)?.[0];
  return run ? <span><a class="link" href={runHref(run)}>{run.slice(0, 8)}</a>{text.slice(run.length)}</span> : <span class="wrap">{text}</span>;
}

interface ServerFacts {
  steers: boolean;
  store: { kind: string; address: string; bytes: number; schema: number; is_writable: boolean; is_durable: boolean; damage: string[] };
  settings: { name: string; value: unknown; origin: string }[];
}

/** What only administrators see: where runs are kept, and every setting with its origin. */
function Store() {
  const found = useResource<ServerFacts>(place.value.ns, (abort) => get(inNamespace("server"), {}, abort));
  const { all = "" } = place.value.query;
  return (
    <Part of={found.state.value} lines={6}>
      {({ steers, store, settings }) => {
        const shown = settings.filter((each) => all || each.origin !== "default");
        return (
          <>
            <section class="card" aria-label="Store">
              <header><h2>Store</h2></header>
              <div class="body">
                <dl class="facts">
                  <dt>Kind</dt><dd>{store.kind}</dd>
                  <dt>Where</dt><dd><code>{store.address}</code></dd>
                  <dt>Size</dt><dd>{bytes(store.bytes)}</dd>
                  <dt>Schema</dt><dd>{store.schema}</dd>
                  <dt>Can be written</dt><dd>{!steers ? "this server only reads" : store.is_writable ? (store.is_durable ? "yes, and a commit survives a loss of power" : <span class="fault">yes, but a loss of power can cost the last commits</span>) : <span class="fault">it cannot be written</span>}</dd>
                  {store.damage.length ? <><dt>Damage</dt><dd class="fault">{store.damage.join("; ")}</dd></> : null}
                </dl>
              </div>
            </section>
            <section class="card" aria-label="Settings of the server">
              <header><h2>Settings of the server</h2><span class="muted">{count(settings.filter((each) => each.origin !== "default").length)} of {count(settings.length)} are set; the others have their defaults</span><span class="spacer" />
                <button type="button" class="chip" aria-pressed={Boolean(all)} onClick={() => choose({ all: all ? null : "1" })}>with defaults</button></header>
              {shown.length ? (
                <div class="table-scroll" tabIndex={0}><table class="plain">
                  <thead><tr><th>Setting</th><th>Value</th><th>From</th></tr></thead>
                  <tbody>
                    {shown.map((each) => (
                      <tr key={each.name}><td><code>{each.name}</code></td><td class="wrap"><code>{valueText(each.value)}</code></td><td class={each.origin === "default" ? "muted" : ""}>{each.origin}</td></tr>
                    ))}
                  </tbody>
                </table></div>
              ) : <Empty title="Every setting has its default." />}
            </section>
          </>
        );
      }}
    </Part>
  );
}

function valueText(value: unknown): string {
  if (value === null || value === "") return "-";
  if (Array.isArray(value)) return value.join(", ") || "-";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function Server() {
  const ready = useResource<{ status: string }>("ready", async (abort) => {
    const answer = await fetch(new URL("readyz", document.baseURI), { signal: abort });
    const body = (await answer.json()) as { status: string | number; detail?: string };
    return { status: answer.ok ? "ready" : (body.detail ?? "not ready") };
  });
  const facts = me.value;
  return (
    <>
    <section class="card" aria-label="Server">
      <header><h2>Server</h2></header>
      <div class="body">
        <dl class="facts">
          <dt>Version</dt><dd>{version.value || "-"}</dd>
          <dt>State</dt><dd><Part of={ready.state.value} lines={1}>{({ status }) => <>{status}</>}</Part></dd>
          <dt>Address</dt><dd><code>{new URL(document.baseURI).origin}</code></dd>
          <dt>Namespace</dt><dd>{place.value.ns}</dd>
          <dt>You are</dt><dd>{facts?.name}, {facts?.role}</dd>
          <dt>You may</dt><dd>{facts?.permissions.join(", ") || "nothing"}</dd>
          <dt>Workflows</dt><dd>{facts?.workflows === null || facts?.workflows === undefined ? "all" : facts.workflows.join(", ")}</dd>
        </dl>
      </div>
      <div class="body col gap-s"><CommandLine text="refold settings" /><CommandLine text="refold doctor" /></div>
    </section>
    {may("administer") ? <Store /> : <Missing what="Store and settings of the server are" />}
    </>
  );
}
