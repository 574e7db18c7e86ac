"""Three worker processes on one server, one of which is killed again and again."""

import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from refold.core.facts import StepIssued, StepSettled
from refold.core.outcomes import Succeeded
from refold.stores.postgres.views import open_postgres_views
from tests.cli.program import playbook, refold, shell, started, until
from tests.contracts.stores import postgres_url

RUNS, KILLS = 15, 3


def test_each_body_that_completed_ran_once_however_often_a_worker_is_killed(tmp_path: Path) -> None:
    """A body reports once, and what has reported does not begin again: not in any of the three processes."""
    db = postgres_url(tmp_path)
    steps = ("one", "two", "three")
    script = 'echo "$R {0} begins" >> log; sleep 0.1; echo "$R {0} ends" >> log'
    parts = [
        shell(step, script.format(step), then, "# ").replace("script:", "env: {R: '{{ run.id }}'}\n  script:")
        for step, then in zip(steps, (*steps[1:], ""), strict=True)
    ]
    file = playbook(tmp_path, *parts)
    for n in range(RUNS):
        assert refold(tmp_path, "run", file, "--detach", "--name", f"r{n}", "--db", db).code == 0
    views = open_postgres_views(db)

    def over() -> int:
        return sum(row.status == "completed" for row in views.runs().rows)

    with ExitStack() as stack:
        workers = [stack.enter_context(started(tmp_path, "worker", REFOLD_DB=db)) for _ in range(3)]
        for kill in range(KILLS):
            seen = over()
            until(lambda seen=seen: over() > seen or over() == RUNS)  # type: ignore[misc]
            victim = workers[kill % 3]
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)
            workers[kill % 3] = stack.enter_context(started(tmp_path, "worker", REFOLD_DB=db))
        until(lambda: over() == RUNS, 180)
    ends = Counter(line.rpartition(" ")[0] for line in (tmp_path / "log").read_text().splitlines() if "ends" in line)
    for row in views.runs().rows:
        facts = [fact for _, _, fact in views.facts(row.run)]
        settled = Counter(
            f.step for f in facts if isinstance(f, StepSettled) and isinstance(f.report.outcome, Succeeded)
        )
        issued = Counter(f.step for f in facts if isinstance(f, StepIssued))
        assert settled == issued == Counter(steps), "a command is settled once, and a loss is not a try"
        assert all(ends[f"{row.run} {step}"] >= 1 for step in steps)
    doubled = sum(count - 1 for count in ends.values())
    assert doubled <= KILLS * 16, "only bodies whose report was lost with their process ran again"
    views.close()
