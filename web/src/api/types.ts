// What the API answers, as far as the page reads it.
export interface Me {
  name: string;
  role: string;
  permissions: string[];
  namespaces: string[];
  workflows: string[] | null;
  expires_at: string | null;
}

export interface Fault {
  kind: string;
  message?: string;
  data?: unknown;
  traceback?: string;
  [name: string]: unknown;
}

export interface RunError {
  kind?: string;
  step?: string;
  visit?: number;
  message?: string;
  why?: string;
  fault?: Fault;
  [name: string]: unknown;
}

export interface RunRow {
  id: string;
  name: string | null;
  key: string | null;
  workflow: string;
  status: string;
  created_at: string;
  ended_at: string | null;
  plan: string;
  parent: string | null;
  continued_by?: string | null;
  head: number;
  gates: number;
  stuck: boolean;
  error: RunError | null;
  labels?: Record<string, string>;
  why?: string | null;
}

export interface Reason {
  step: string;
  kind: string;
  text: string;
  visit?: number;
  item?: number | null;
  attempt?: number;
  until?: string | null;
  since?: string | null;
  worker?: string;
  by?: string;
  assignee?: string;
  signal?: string;
  run?: string;
  sources?: string[];
  places?: string[];
  count?: number;
  note?: string;
}

export interface StepRow {
  step: string;
  status: string;
  visits: number;
  attempts: number;
  count: number;
  done: number;
  failed: number;
  open: number;
  retried: number;
  skipped: number;
  cancelled: number;
  more: boolean;
  rate: number;
  left: number | null;
  reason: Reason | null;
  error: Fault | null;
}

export interface RunHead extends RunRow {
  steps: StepRow[];
  reasons: Reason[];
  usage: Record<string, number>;
  may: string[];
}

export interface Fact {
  number: number;
  at: string;
  type: string;
  step?: string;
  visit?: number;
  attempt?: number;
  text?: string;
  [name: string]: unknown;
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
  more: boolean;
}
