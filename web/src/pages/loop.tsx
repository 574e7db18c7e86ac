// The page of one loop.
export function Loop({ run, step }: { run: string; step: string }) {
  return <div class="page"><div class="page-head"><h1>{run} {step}</h1></div></div>;
}
