"""What every test run shares: Hypothesis profiles, and the strict mode in which nothing may be skipped."""

import gc
import os
import random
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.scheduler.protocol import Scheduling  # type: ignore[import-untyped]

TOGETHER = {
    "tests/page/": "the page",  # one browser and one event loop
    "tests/test_texts.py": "the source",  # parsed once
    "tests/test_tree.py": "the source",
}

SLOW = [HealthCheck.too_slow]  # told by the clock, and a busy machine is not a fault of a test
settings.register_profile("ci", derandomize=True, deadline=None, database=None, suppress_health_check=SLOW)
settings.register_profile(
    "proof", derandomize=False, deadline=None, database=None, print_blob=True, suppress_health_check=SLOW
)
settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Chosen before Hypothesis and xdist read their options, so that one seed serves every worker.
    if config.getoption("--hypothesis-profile") == "proof" and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))


def pytest_sessionstart(session: pytest.Session) -> None:
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # started in the background: programs would not hear it
            signal.signal(number, usual)
    reporter = _reporter(session.config)
    seed = session.config.getoption("--hypothesis-seed")
    if reporter is not None and seed is not None:
        reporter.write_line(f"to repeat these examples: --hypothesis-seed={seed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., object]) -> "Scheduling":
    """Each test goes to the next free process, but those that belong together to one."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


def group_of(nodeid: str) -> str:
    return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The tests themselves stay until the end, so the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = _reporter(session.config)
    if reporter is None or os.environ.get("REFOLD_STRICT") != "1":
        return
    excused = [report.nodeid for reports in reporter.stats.values() for report in reports if _is_excused(report)]
    if excused:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line("")
        for test in excused:
            reporter.write_line(f"REFOLD_STRICT=1 refuses a skipped or xfailed test: {test}", red=True)


def _reporter(config: pytest.Config) -> pytest.TerminalReporter | None:
    """Only the controlling process reports: under xdist it hears of every worker's results."""
    if hasattr(config, "workerinput"):
        return None
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter if isinstance(reporter, pytest.TerminalReporter) else None


def _is_excused(report: object) -> bool:
    """Skipped, xfailed or xpassed; asked of the report, because the counts leave out skipped subtests."""
    if not isinstance(report, pytest.TestReport | pytest.CollectReport):
        return False
    return report.skipped or hasattr(report, "wasxfail")
