// Starts the page: who is asking, then what the address names.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connection, me, signIn } from "./api/client";
import { startStream } from "./api/stream";
import { startKeys } from "./app/keys";
import { startTheme } from "./app/preferences";
import { startRouter } from "./app/router";
import { Mark, Shell } from "./app/shell";
import { Loading, Trouble } from "./ui/parts";

function Start() {
  const [error, setError] = useState<Error | null>(null);
  const begin = () => {
    setError(null);
    signIn().then(() => { startRouter(); startStream(); }, setError);
  };
  useEffect(begin, []);
  if (connection.value === "signed-out") return <SignedOut />;
  if (me.value) return <Shell />;
  return <div class="page">{error ? <Trouble error={error} onAgain={begin} /> : <Loading />}</div>;
}

function SignedOut() {
  return (
    <div class="page">
      <div class="page-head"><span class="brand"><Mark />Refold</span></div>
      <div class="empty">
        <b>You are not signed in.</b>
        <p>A sign-in link opens this page; it is valid once. This command prints one, on the machine of the server:</p>
        <code>refold token link</code>
        <p><a class="link" href="openapi.json">openapi.json</a> describes the API for programs.</p>
      </div>
    </div>
  );
}

startTheme();
startKeys();
const root = document.getElementById("page");
if (root) render(<Start />, root);
