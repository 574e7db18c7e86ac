// The page of one run in one file: no server, no network, nothing but what was recorded.
import { render } from "preact";
import { me } from "./api/client";
import { recording } from "./api/recorded";
import { startKeys } from "./app/keys";
import { KeysDialog, keysAreShown } from "./app/palette";
import { prefer, preferences, startTheme } from "./app/preferences";
import { href, place, startRouter } from "./app/router";
import { Mark } from "./app/shell";
import { Loop } from "./pages/loop";
import { Run } from "./pages/run";
import { DialogLayer, ToastLayer } from "./ui/parts";
import { Moment, zoneName } from "./ui/time";
import { TipLayer } from "./ui/tip";

function File({ run }: { run: string }) {
  const [kind, id, part, step] = place.value.path;
  const isLoop = kind === "runs" && id === run && part === "loops" && step;
  return (
    <div class="one-file">
      <header class="file-head">
        <a class="brand" href={href(["runs", run])}><Mark />Refold</a>
        <span class="soft">recorded <Moment at={recording?.at} /> {zoneName.value}{recording?.left_out.length ? `, without ${recording.left_out.join(", ")}` : ""}</span>
        <span class="grow" />
        <button type="button" class="btn small quiet" onClick={() => prefer({ zone: preferences.value.zone === "UTC" ? "local" : "UTC" })}>{zoneName.value}</button>
        <button type="button" class="btn small quiet" onClick={() => (keysAreShown.value = true)}>Keys</button>
      </header>
      <main class="main" id="main" tabIndex={-1}>{isLoop ? <Loop key={step} run={run} step={step} /> : <Run key={run} run={run} />}</main>
      {keysAreShown.value ? <KeysDialog /> : null}
      <DialogLayer />
      <ToastLayer />
      <TipLayer />
    </div>
  );
}

startTheme();
startKeys();
startRouter();
const root = document.getElementById("page");
if (root && recording) {
  me.value = { name: "", role: "recording", permissions: ["read", "values"], namespaces: [recording.namespace], workflows: null, expires_at: null };
  if (place.value.path[0] !== "runs") location.hash = href(["runs", recording.run.id]).slice(1);
  render(<File run={recording.run.id} />, root);
}
