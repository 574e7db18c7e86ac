// The page Now.
export function Now() {
  return <div class="page"><div class="page-head"><h1>Now</h1></div></div>;
}
