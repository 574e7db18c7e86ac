// The page of one run.
export function Run({ run }: { run: string }) {
  return <div class="page"><div class="page-head"><h1>{run}</h1></div></div>;
}
