"""The page at the address of the server, and the headers of every answer.

The page holds no data: it exchanges the ticket of a sign-in link, which stands behind the `#` and is never sent, for a
cookie, and shows what the API says.
"""

import hashlib
from base64 import b64encode

SCRIPT = """\
const show = (text) => { document.getElementById("state").textContent = text; };
const ask = async (address, options = {}) => {
  const answer = await fetch(address, { ...options, headers: { "x-refold": "1", ...options.headers } });
  const body = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(body.detail || body.title);
  return body;
};
const signIn = async () => {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    await ask("/api/v1/sign-in", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ticket }),
    });
  }
  const me = await ask("/api/v1/me");
  show(`You are signed in as ${me.name} (${me.role}).`);
  document.getElementById("out").hidden = false;
};
document.getElementById("out").addEventListener("click", async () => {
  await ask("/api/v1/sign-in", { method: "DELETE", headers: { "content-type": "application/json" } });
  document.getElementById("out").hidden = true;
  show("You are signed out.");
});
signIn().catch((error) => show(error.message));
"""

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }
"""

PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Refold</title>
<link rel="stylesheet" href="/sign-in.css"></head>
<body><h1>Refold</h1>
<p id="state" role="status">Signing in …</p>
<p><button id="out" type="button" hidden>Sign out</button></p>
<p>Programs use the API under <code>/api/v1</code>; <a href="/openapi.json">openapi.json</a> describes it.
<code>refold token link</code> prints a link that signs you in.</p>
<script src="/sign-in.js"></script></body>
</html>
"""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer, errors included."""

FILES = {
    "/": (PAGE, "text/html; charset=utf-8"),
    "/sign-in.js": (SCRIPT, "text/javascript; charset=utf-8"),
    "/sign-in.css": (STYLE, "text/css; charset=utf-8"),
}


def tag(text: str) -> str:
    """The ETag of a file."""
    return f'"{b64encode(hashlib.sha256(text.encode()).digest())[:16].decode()}"'
