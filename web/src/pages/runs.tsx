// The page Runs.
export function Runs() {
  return <div class="page"><div class="page-head"><h1>Runs</h1></div></div>;
}
