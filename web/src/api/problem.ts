// What a server refuses, as it says it.
export interface ProblemDocument {
  title: string;
  status: number;
  detail: string;
  code: string;
  errors?: { pointer?: string; line?: number; column?: number; hint?: string; detail?: string; code?: string }[];
  trace_id?: string;
}

/** What the server refused, in its own words. */
export class Problem extends Error {
  constructor(readonly document: ProblemDocument) {
    super(document.detail || document.title);
  }
  get status(): number {
    return this.document.status;
  }
  get code(): string {
    return this.document.code;
  }
}
