// The API in types. Written from the table of routes by `python -m docs.build.page_types`; do not edit it.

export type AnswerBody = { value?: unknown };
export type BackfillBody = { from: string; until?: string | null; only?: "all" | "missing"; overlap?: "allow" | "buffer_all"; at_once?: number; order?: "newest" | "oldest"; dry_run?: boolean; id?: string };
export type BatchBody = { runs: (StartBody)[] };
export type CancelBody = { reason?: string };
export type DecisionBody = { option: string; feedback?: unknown; choices?: (string)[] };
export type DefinitionBody = { definition: string };
export type GoBody = { rate?: number };
export type ImportBody = { run: Record<string, unknown> };
export type ItemsBody = { items?: (number)[]; follow?: boolean };
export type LimitBody = { name: string; slots?: number | null; rate?: number | null; burst?: number };
export type LimitNameBody = { name: string };
export type MigrateBody = { to: string };
export type NoBody = Record<string, never>;
export type OperationBody = { action: "cancel" | "delete" | "migrate" | "pause" | "redrive" | "resume" | "retry"; on?: "runs" | "schedules"; filter?: WantedRuns | null; ids?: (string)[] | null; to?: string; reason?: string };
export type PauseBody = { note?: string };
export type PlanBody = { plan: Record<string, unknown> };
export type PreviewBody = { definition?: string; id?: string; from?: string | null; limit?: number };
export type Problem = { type: string; title: string; status: number; detail: string; code: string; trace_id: string; errors?: (Record<string, unknown>)[] };
export type ResumeBody = { budget?: Record<string, number> };
export type RetryBody = { from?: string; budget?: Record<string, number>; plan?: string; tolerated?: boolean; follow?: boolean };
export type ScheduleBody = { definition?: string; workflow?: string; plan?: string; code?: string; input?: Record<string, unknown>; labels?: Record<string, string>; cron?: (string)[]; every?: string; at?: (string)[]; zone?: string; from?: string; until?: string; except?: (string)[]; only?: (string)[]; gap?: string; repeat?: string; overlap?: string; catch_up?: unknown; jitter?: string; start_within?: string; pause_after?: number | null; paused?: boolean; note?: string };
export type SignInBody = { ticket: string };
export type SignalBody = { value?: unknown };
export type StartBody = { workflow?: string; input?: Record<string, unknown>; key?: string; name?: string; labels?: Record<string, string>; plan?: string; queue?: string; priority?: number | null; share?: string; limit?: string; id?: string };
export type TokenBody = { name: string; role: string; plus?: (string)[]; minus?: (string)[]; workflows?: (string)[] | null; queues?: (string)[] | null; tools?: (string)[] | null; expires?: string | null };
export type TriggerBody = { overlap?: "allow" | "buffer_all" | "buffer_one" | "cancel_other" | "skip" | "terminate_other" | null };
export type WantedRuns = { status?: (string)[]; workflow?: string | null; plan?: string | null; name?: string | null; key?: string | null; labels?: Record<string, string>; since?: string | null; until?: string | null; parent?: string | null; error?: string; fingerprint?: string };
export type WeightBody = { share: string; weight: number | null };

export interface Routes {
  "GET /": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: string;
  };
  "GET /api/v1/me": {
    permission: "any";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/audit": {
    permission: "administer";
    path: { ns: string };
    query: { after?: number; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/dead-letters": {
    permission: "read";
    path: { ns: string };
    query: { limit?: number; cursor?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/dead-letters/{fingerprint}": {
    permission: "read";
    path: { ns: string; fingerprint: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/dead-letters/{fingerprint}/dismiss": {
    permission: "operate";
    path: { ns: string; fingerprint: string };
    query: Record<string, never>;
    body: NoBody;
    reply: undefined;
  };
  "GET /api/v1/ns/{ns}/gates": {
    permission: "read";
    path: { ns: string };
    query: { assignee?: string; order?: "created" | "deadline" };
    body: undefined;
    reply: unknown;
  };
  "PUT /api/v1/ns/{ns}/limits": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: LimitBody;
    reply: undefined;
  };
  "POST /api/v1/ns/{ns}/limits:remove": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: LimitNameBody;
    reply: undefined;
  };
  "GET /api/v1/ns/{ns}/operations": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/operations": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: OperationBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/operations/{id}": {
    permission: "operate";
    path: { ns: string; id: string };
    query: { limit?: number; cursor?: string; outcome?: "done" | "refused" | "waiting" };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/operations/{id}/go": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: GoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/operations/{id}/stop": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/overview": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "PUT /api/v1/ns/{ns}/plans/{hash}": {
    permission: "write";
    path: { ns: string; hash: string };
    query: Record<string, never>;
    body: PlanBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/plans/{hash}": {
    permission: "values";
    path: { ns: string; hash: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/plans/{hash}/graph": {
    permission: "read";
    path: { ns: string; hash: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/queues": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs": {
    permission: "read";
    path: { ns: string };
    query: { limit?: number; cursor?: string; status?: ("cancelled" | "completed" | "continued" | "ending" | "failed" | "paused" | "running" | "waiting")[]; workflow?: string; plan?: string; name?: string; key?: string; label?: (string)[]; since?: string; until?: string; parent?: string; error?: string; fingerprint?: string; schedule?: string; gates?: boolean; by?: "created" | "ended"; order?: "-created"; why?: boolean };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs": {
    permission: "start";
    path: { ns: string };
    query: Record<string, never>;
    body: StartBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}": {
    permission: "read";
    path: { ns: string; run: string };
    query: { after?: number; wait?: number };
    body: undefined;
    reply: unknown;
  };
  "DELETE /api/v1/ns/{ns}/runs/{run}": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: undefined;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/at/{n}": {
    permission: "read";
    path: { ns: string; run: string; n: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/cancel": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: CancelBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/children": {
    permission: "read";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/context": {
    permission: "values";
    path: { ns: string; run: string };
    query: { values?: "download" | "inline" | "none" | "text" };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/export": {
    permission: "values";
    path: { ns: string; run: string };
    query: { as?: "html" | "json" | "size" };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/facts": {
    permission: "read";
    path: { ns: string; run: string };
    query: { after?: number; limit?: number; kind?: string; step?: string; q?: string; values?: "inline" | "none" };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/facts/{n}": {
    permission: "read";
    path: { ns: string; run: string; n: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/frames": {
    permission: "read";
    path: { ns: string; run: string };
    query: { after?: number; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/gates/{step}/{visit}": {
    permission: "decide";
    path: { ns: string; run: string; step: string; visit: string };
    query: Record<string, never>;
    body: DecisionBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/graph": {
    permission: "read";
    path: { ns: string; run: string };
    query: { at?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/input": {
    permission: "values";
    path: { ns: string; run: string };
    query: { values?: "download" | "inline" | "none" | "text" };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/lines": {
    permission: "values";
    path: { ns: string; run: string };
    query: { after?: number; before?: number; limit?: number; q?: string; step?: string; item?: number; stream?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/loops/{step}/failures": {
    permission: "read";
    path: { ns: string; run: string; step: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/loops/{step}/items": {
    permission: "read";
    path: { ns: string; run: string; step: string };
    query: { limit?: number; cursor?: string; state?: (string)[]; from?: number; until?: number; skip?: number; q?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/loops/{step}/items/{i}": {
    permission: "read";
    path: { ns: string; run: string; step: string; i: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/loops/{step}/items:cancel": {
    permission: "operate";
    path: { ns: string; run: string; step: string };
    query: Record<string, never>;
    body: ItemsBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/loops/{step}/items:retry": {
    permission: "operate";
    path: { ns: string; run: string; step: string };
    query: Record<string, never>;
    body: ItemsBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/loops/{step}/strip": {
    permission: "read";
    path: { ns: string; run: string; step: string };
    query: { from?: number; until?: number; bins?: number };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/migrate": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: MigrateBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/pause": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/questions/{id}": {
    permission: "decide";
    path: { ns: string; run: string; id: string };
    query: Record<string, never>;
    body: AnswerBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/result": {
    permission: "values";
    path: { ns: string; run: string };
    query: { values?: "download" | "inline" | "none" | "text" };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/resume": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: ResumeBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/retry": {
    permission: "operate";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: RetryBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs/{run}/signals/{name}": {
    permission: "operate";
    path: { ns: string; run: string; name: string };
    query: Record<string, never>;
    body: SignalBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/steps/{step}": {
    permission: "read";
    path: { ns: string; run: string; step: string };
    query: { at?: number; values?: "inline" | "none" | "text" };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/stream": {
    permission: "read";
    path: { ns: string; run: string };
    query: { from?: number };
    body: undefined;
    reply: string;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/time": {
    permission: "read";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/timeline": {
    permission: "read";
    path: { ns: string; run: string };
    query: { from?: string; until?: string; width?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/usage": {
    permission: "read";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/values/{hash}": {
    permission: "values";
    path: { ns: string; run: string; hash: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs/{run}/why": {
    permission: "read";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs:batch": {
    permission: "start";
    path: { ns: string };
    query: Record<string, never>;
    body: BatchBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs:count": {
    permission: "read";
    path: { ns: string };
    query: { limit?: number; cursor?: string; status?: ("cancelled" | "completed" | "continued" | "ending" | "failed" | "paused" | "running" | "waiting")[]; workflow?: string; plan?: string; name?: string; key?: string; label?: (string)[]; since?: string; until?: string; parent?: string; error?: string; fingerprint?: string; schedule?: string; gates?: boolean; by?: "created" | "ended"; order?: "-created"; why?: boolean };
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/runs:import": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: ImportBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/runs:summary": {
    permission: "read";
    path: { ns: string };
    query: { limit?: number; cursor?: string; status?: ("cancelled" | "completed" | "continued" | "ending" | "failed" | "paused" | "running" | "waiting")[]; workflow?: string; plan?: string; name?: string; key?: string; label?: (string)[]; since?: string; until?: string; parent?: string; error?: string; fingerprint?: string; schedule?: string; gates?: boolean; by?: "created" | "ended"; order?: "-created"; why?: boolean; bins?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/schedules": {
    permission: "read";
    path: { ns: string };
    query: { limit?: number; cursor?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/schedules/{id}": {
    permission: "read";
    path: { ns: string; id: string };
    query: { times?: number };
    body: undefined;
    reply: unknown;
  };
  "PUT /api/v1/ns/{ns}/schedules/{id}": {
    permission: "write";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: ScheduleBody;
    reply: unknown;
  };
  "DELETE /api/v1/ns/{ns}/schedules/{id}": {
    permission: "write";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: undefined;
    reply: undefined;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/backfill": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: BackfillBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/backfills/{backfill}/pause": {
    permission: "operate";
    path: { ns: string; id: string; backfill: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/backfills/{backfill}/resume": {
    permission: "operate";
    path: { ns: string; id: string; backfill: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/backfills/{backfill}/stop": {
    permission: "operate";
    path: { ns: string; id: string; backfill: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/pause": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: PauseBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/resume": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: NoBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules/{id}/trigger": {
    permission: "operate";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: TriggerBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/schedules:preview": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: PreviewBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/server": {
    permission: "administer";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "PUT /api/v1/ns/{ns}/shares": {
    permission: "operate";
    path: { ns: string };
    query: Record<string, never>;
    body: WeightBody;
    reply: undefined;
  };
  "GET /api/v1/ns/{ns}/stream": {
    permission: "read";
    path: { ns: string };
    query: { topics?: string };
    body: undefined;
    reply: string;
  };
  "GET /api/v1/ns/{ns}/tokens": {
    permission: "administer";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/tokens": {
    permission: "administer";
    path: { ns: string };
    query: Record<string, never>;
    body: TokenBody;
    reply: unknown;
  };
  "DELETE /api/v1/ns/{ns}/tokens/{id}": {
    permission: "administer";
    path: { ns: string; id: string };
    query: Record<string, never>;
    body: undefined;
    reply: undefined;
  };
  "GET /api/v1/ns/{ns}/views/dead-letters": {
    permission: "values";
    path: { ns: string };
    query: { fingerprint?: string; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/documents": {
    permission: "values";
    path: { ns: string };
    query: { kind: string; id?: string; after?: string; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/leases": {
    permission: "read";
    path: { ns: string };
    query: { run?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/limits": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/now": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/plans": {
    permission: "values";
    path: { ns: string };
    query: { beginning: string; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/plans/{hash}": {
    permission: "values";
    path: { ns: string; hash: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/queues": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs": {
    permission: "read";
    path: { ns: string };
    query: { status?: string; workflow?: string; name?: string; key?: string; label?: (string)[]; since?: number; until?: number; parent?: string; error?: string; after_at?: number; after_run?: string; limit?: number; most?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs/{run}": {
    permission: "read";
    path: { ns: string; run: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs/{run}/facts": {
    permission: "values";
    path: { ns: string; run: string };
    query: { after?: number; limit?: number; number?: (string)[] };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs/{run}/lines": {
    permission: "values";
    path: { ns: string; run: string };
    query: { after?: number; before?: number; backwards?: boolean; limit?: number; search?: string };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs:called": {
    permission: "read";
    path: { ns: string };
    query: { text: string; status?: string; limit?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/runs:count": {
    permission: "read";
    path: { ns: string };
    query: { status?: string; workflow?: string; name?: string; key?: string; label?: (string)[]; since?: number; until?: number; parent?: string; error?: string; after_at?: number; after_run?: string; limit?: number; most?: number };
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/shares": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/views/workers": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/workers": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/workers/{worker}/drain": {
    permission: "operate";
    path: { ns: string; worker: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/workflows": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/workflows/{name}": {
    permission: "read";
    path: { ns: string; name: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "PUT /api/v1/ns/{ns}/workflows/{name}": {
    permission: "write";
    path: { ns: string; name: string };
    query: Record<string, never>;
    body: DefinitionBody;
    reply: unknown;
  };
  "POST /api/v1/ns/{ns}/workflows:check": {
    permission: "write";
    path: { ns: string };
    query: Record<string, never>;
    body: DefinitionBody;
    reply: unknown;
  };
  "GET /api/v1/ns/{ns}/workflows:schema": {
    permission: "read";
    path: { ns: string };
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "POST /api/v1/sign-in": {
    permission: "ticket";
    path: Record<string, never>;
    query: Record<string, never>;
    body: SignInBody;
    reply: unknown;
  };
  "DELETE /api/v1/sign-in": {
    permission: "any";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: undefined;
  };
  "GET /assets/{file}": {
    permission: "open";
    path: { file: string };
    query: Record<string, never>;
    body: undefined;
    reply: string;
  };
  "GET /healthz": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /livez": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /metrics": {
    permission: "read";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: string;
  };
  "GET /openapi.json": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /readyz": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
  "GET /version": {
    permission: "open";
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    reply: unknown;
  };
}
