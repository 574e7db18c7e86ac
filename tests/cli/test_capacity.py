"""How many steps run at a time, and what lists say of the others."""

import os
from pathlib import Path

from tests.cli.program import HEAD, refold, started, until

BARRIER = """  - step: fan
    loop: {in: "{{ range(COUNT) | list }}", max_in_flight: COUNT}
    tool:
      kind: python
      code: |
        import os, time
        open(f"began-{os.getpid()}", "w").close()
        while len([each for each in os.listdir(".") if each.startswith("began-")]) < ENOUGH:
            time.sleep(0.01)
"""


def barrier(folder: Path, count: int, enough: int) -> str:
    (folder / "play.yaml").write_text(HEAD + BARRIER.replace("COUNT", str(count)).replace("ENOUGH", str(enough)))
    return "play.yaml"


def test_a_loop_of_python_steps_runs_as_many_items_at_a_time_as_it_asks_for(tmp_path: Path) -> None:
    """Up to four for each processor, without any setting."""
    count = min(4 * (os.cpu_count() or 1), 8)
    assert refold(tmp_path, "run", barrier(tmp_path, count, count)).code == 0


def test_what_has_no_interpreter_is_left_to_other_workers(tmp_path: Path) -> None:
    """Two workers with one interpreter each: neither keeps a claim that it cannot start."""
    assert refold(tmp_path, "run", barrier(tmp_path, 2, 2), "--detach", "--name", "r").code == 0
    one = {"REFOLD_PROCESSES": "1"}
    with started(tmp_path, "worker", **one), started(tmp_path, "worker", **one):
        until(lambda: refold(tmp_path, "runs", "show", "r", "-o", "json").data["status"] == "completed")
