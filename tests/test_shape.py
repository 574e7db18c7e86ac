"""`make shape` prints its report; no figure in it is a law."""

import re
import subprocess
import sys

from tests.imports import ROOT


def test_the_report_has_all_its_parts_and_walks_through_a_run() -> None:
    command = [sys.executable, "-m", "tests.shape"]
    report = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for part in (
        r"^files over 500 lines: \d+$",
        r"^functions over 80 lines: \d+$",
        r"^classes with more than 25 methods: \d+$",
        r"^files without examples: \d+, lines: \d+, median file: \d+ lines$",
        r"^files with exactly one importer: \d+; of these under 80 lines \(marked \*\): \d+$",
        r"^public class names defined more than once: \d+$",
        r"^hops of a one-step run: \d+ files; calls across files: about \d+$",
    ):
        assert re.search(part, report, re.MULTILINE), part
    walked = report[report.index("hops of a one-step run") :]
    assert all(f"  {room}/" in walked for room in ("cli", "core", "runtime", "stores", "worker", "tools"))
