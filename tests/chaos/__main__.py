"""`python -m tests.chaos [ROW] [--seconds N]`: a fleet on PostgreSQL under one kind of faults, or under each in turn.

Each row prints its numbers. It fails if a rule is broken, if the server has seen a deadlock, or if too few faults were
observed for the time that it ran.
"""

import argparse
import sys
import time

from tests.chaos.rows import ROWS, Row, Verdict, run_row

FULL = 600.0  # seconds of a row; the numbers to reach are those of this time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("row", nargs="?", choices=list(ROWS))
    parser.add_argument("--seconds", type=float, default=FULL)
    given = parser.parse_args()
    failed = 0
    for row in [ROWS[given.row]] if given.row else ROWS.values():
        failed += not shown(row, given.seconds)
    return 1 if failed else 0


def shown(row: Row, seconds: float) -> bool:
    began = time.monotonic()
    print(f"{row.name}: {row.about}", flush=True)
    verdict: Verdict = run_row(row, seconds)
    print(f"  {time.monotonic() - began:.0f} s; " + ", ".join(f"{n} {what}" for what, n in verdict.numbers.items()))
    for text in verdict.wrong[:20]:
        print(f"  WRONG: {text}")
    print(f"  {row.name} {'passed' if not verdict.wrong else f'FAILED, {len(verdict.wrong)} times'}", flush=True)
    return not verdict.wrong


if __name__ == "__main__":
    sys.exit(main())
