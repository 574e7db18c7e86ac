// The rows of a run after any of its facts, drawn from frames: what each fact changed, from a keyframe on.
// A test compares what this file draws with what the server folds, for every fact of random logs.

export interface FrameRow {
  step: string;
}

export interface Frame<Row extends FrameRow> {
  number: number;
  at: string;
  status: string;
  fact: { number: number; at: string; type: string; step?: string; text?: string };
  changed: Row[];
  order: string[] | null; // the steps of all rows, where they are others than before
  error: unknown;
}

export interface Keyframe<Row extends FrameRow> {
  status: string;
  head: number;
  steps: Row[];
  error: unknown;
}

/** Frames that follow each other: those of the facts `after + 1`, `after + 2` and so on. */
export interface Piece<Row extends FrameRow> {
  after: number;
  keyframe: Keyframe<Row> | null; // the rows after the fact `after`; null: before the first fact
  frames: Frame<Row>[];
}

export interface Moment<Row extends FrameRow> {
  number: number;
  at: string;
  status: string;
  rows: Row[];
  changed: ReadonlySet<string>;
  fact: Frame<Row>["fact"];
  error: unknown;
}

export const WINDOW = 500; // frames of one request

function reaches(piece: Piece<FrameRow>, number: number): boolean {
  return piece.after < number && number <= piece.after + piece.frames.length;
}

/** Keeps pieces, and draws moments from them. Going forwards inside a piece applies only the frames in between. */
export class Frames<Row extends FrameRow> {
  private pieces: Piece<Row>[] = [];
  private last: { piece: Piece<Row>; rows: Map<string, Row>; number: number } | null = null;

  add(piece: Piece<Row>): void {
    if (piece.frames.length) this.pieces.push(piece);
  }

  /** The number of the fact after which frames have to be fetched to draw a moment; null: there are enough. */
  missing(number: number): number | null {
    if (this.pieces.some((each) => reaches(each, number))) return null;
    const begin = Math.floor((number - 1) / WINDOW) * WINDOW;
    const ends = this.pieces.map((each) => each.after + each.frames.length).filter((end) => begin <= end && end < number);
    return ends.length ? Math.max(...ends) : begin;
  }

  at(number: number): Moment<Row> | null {
    const piece = this.pieces.find((each) => reaches(each, number));
    if (!piece) return null;
    const isOnTheWay = this.last?.piece === piece && this.last.number <= number;
    const begun = isOnTheWay && this.last ? this.last : { piece, rows: rowsOf(piece.keyframe), number: piece.after };
    let rows = begun.rows;
    for (const frame of piece.frames.slice(begun.number - piece.after, number - piece.after)) rows = applied(rows, frame);
    this.last = { piece, rows, number };
    const frame = piece.frames[number - piece.after - 1] as Frame<Row>;
    const changed = new Set(frame.changed.map((each) => each.step));
    return { number, at: frame.at, status: frame.status, rows: [...rows.values()], changed, fact: frame.fact, error: frame.error };
  }

  /** The frame of a fact, if it is here. */
  frame(number: number): Frame<Row> | null {
    const piece = this.pieces.find((each) => reaches(each, number));
    return piece?.frames[number - piece.after - 1] ?? null;
  }
}

function rowsOf<Row extends FrameRow>(keyframe: Keyframe<Row> | null): Map<string, Row> {
  return new Map(keyframe?.steps.map((each) => [each.step, each]));
}

function applied<Row extends FrameRow>(before: Map<string, Row>, frame: Frame<Row>): Map<string, Row> {
  const rows = before;
  for (const each of frame.changed) rows.set(each.step, each);
  if (!frame.order) return rows;
  const ordered = new Map<string, Row>();
  for (const step of frame.order) {
    const row = rows.get(step);
    if (row) ordered.set(step, row);
  }
  return ordered;
}
