"""What the command line costs: `refold run` of one step beside a bare interpreter, and the live tree beside none.

`python -m bench.cli_cost [--quick]`. The tree is drawn on a pseudo-terminal whose other end is read all the time.
"""

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from msgspec import Struct

STARTS = 25  # times `python -c pass`: `refold run` of one step takes at most so long
TREE = 0.05  # of a loop's time is what the tree costs at most

ONE = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: one}
workflow:
  - step: only
    tool: {kind: noop}
"""
LOOP = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: loop}
workflow:
  - step: each
    loop: {in: "{{ range(COUNT) }}", spec: {mode: parallel, max_in_flight: 16}}
    tool: {kind: noop}
"""


class CliCost(Struct, frozen=True):
    """Seconds, each the least of its rounds, so that a busy machine counts little."""

    bare: float  # python -c pass
    run: float  # refold run of one step, into a new file
    again: float  # and into one that is there
    without: float  # a loop with no progress shown
    tree: float  # and with the live tree

    @property
    def starts(self) -> float:
        return self.run / self.bare

    @property
    def share(self) -> float:
        """Of the loop's time, what drawing it adds."""
        return self.tree / self.without - 1


def taken(command: Sequence[str], folder: str) -> float:
    began = perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return perf_counter() - began


def taken_on_terminal(command: Sequence[str], folder: str) -> float:
    """On a terminal for its messages; the result goes nowhere."""
    master, slave = pty.openpty()
    reading = threading.Thread(target=_drain, args=(master,), daemon=True)
    reading.start()
    began = perf_counter()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=slave)
    spent = perf_counter() - began
    os.close(slave)
    reading.join(1)
    os.close(master)
    return spent


def _drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        return


def measure(rounds: int, items: int, loops: int) -> CliCost:
    refold = [sys.executable, "-m", "refold.cli"]
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        Path(folder, "one.yaml").write_text(ONE)
        Path(folder, "loop.yaml").write_text(LOOP.replace("COUNT", str(items)))
        times: dict[str, list[float]] = {name: [] for name in CliCost.__struct_fields__}
        for n in range(rounds):
            times["bare"].append(taken([sys.executable, "-c", "pass"], folder))
            times["run"].append(taken([*refold, "run", "one.yaml", "--db", f"{n}.db"], folder))
            times["again"].append(taken([*refold, "run", "one.yaml"], folder))
        for n in range(loops):
            loop = [*refold, "run", "loop.yaml", "--db", f"loop{n}.db", "--progress"]
            times["without"].append(taken_on_terminal([*loop, "none"], folder))
            times["tree"].append(taken_on_terminal([*loop, "tree"], folder))
    return CliCost(**{name: min(values) for name, values in times.items()})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cli_cost", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it; too little to judge by")
    quick = parser.parse_args().quick
    cost = measure(*((5, 1_000, 2) if quick else (25, 10_000, 7)))
    for name in CliCost.__struct_fields__:
        print(f"{name:8}{1e3 * getattr(cost, name):10.1f} ms")
    print(f"one step: {cost.starts:.1f} times a bare interpreter (at most {STARTS})")
    print(f"the tree: {100 * cost.share:+.1f} % of the loop's time (at most {100 * TREE:.0f} %)")
    missed = cost.starts > STARTS or cost.share > TREE
    return 1 if missed and not quick else 0


if __name__ == "__main__":
    sys.exit(main())
