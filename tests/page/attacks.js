// What a page of another program tries with the cookies of a browser that is signed in to Refold.
async ([url, run]) => {
  const outcomes = {};
  const attempt = async (name, act) => {
    try {
      outcomes[name] = await act();
    } catch {
      outcomes[name] = "refused";
    }
  };
  const text = async (address, options) => (await fetch(address, { credentials: "include", ...options })).text();
  const loaded = (tag, address) =>
    new Promise((resolve) => {
      tag.onload = () => resolve("loaded");
      tag.onerror = () => resolve("refused");
      tag.src = address;
      document.head.append(tag);
    });
  const cancel = `${url}/runs/${run}/cancel`;
  const json = { "content-type": "application/json", "x-refold": "1" };
  await attempt("read", () => text(`${url}/runs`));
  await attempt("read with the header", () => text(`${url}/runs`, { headers: { "x-refold": "1" } }));
  await attempt("stream", () => text(`${url}/stream`));
  await attempt("json post", () => text(cancel, { method: "POST", body: "{}", headers: json }));
  await attempt("delete", () => text(`${url}/runs/${run}`, { method: "DELETE" }));
  await attempt("plain post", async () => {
    const sent = await fetch(cancel, { method: "POST", mode: "no-cors", credentials: "include", body: "{}" });
    return sent.type;
  });
  await attempt("beacon", () => navigator.sendBeacon(cancel, new Blob(["{}"], { type: "text/plain" })));
  await attempt("script", () => loaded(document.createElement("script"), `${url}/runs`));
  await attempt("picture", () => loaded(new Image(), `${url}/runs/${run}/export`));
  await attempt(
    "events",
    () =>
      new Promise((resolve) => {
        const source = new EventSource(`${url}/stream`, { withCredentials: true });
        source.onmessage = () => resolve("read");
        source.onerror = () => {
          source.close();
          resolve("refused");
        };
      }),
  );
  await attempt(
    "socket",
    () =>
      new Promise((resolve) => {
        const socket = new WebSocket(`${url.replace("http", "ws")}/stream`);
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      }),
  );
  return outcomes;
};
