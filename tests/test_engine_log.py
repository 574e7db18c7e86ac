"""The engine's own log: what a line looks like, where it goes, and what is never in it."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from msgspec import json

from refold import logs
from refold.executors.inline import collect_logs, log_receiver

LOG = logs.logger("test")


@pytest.fixture
def own() -> Iterator[logging.Logger]:
    """The logger `refold`, which is afterwards as it was."""
    logger = logging.getLogger("refold")
    before = list(logger.handlers), logger.propagate, logger.level
    yield logger
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])


def printed(mode: str, level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(mode, level, stream)
    return stream


def test_a_line_of_text_has_the_time_the_level_the_words_and_the_fields(own: logging.Logger) -> None:
    stream = printed("text")
    logs.event(LOG, logs.INFO, "step claimed", run="r1", step="a", command="a/1", attempt=2, worker="w")
    time, rest = stream.getvalue().split(" ", 1)
    assert rest == "INFO refold.test step claimed run=r1 step=a command=a/1 attempt=2 worker=w\n"
    assert len(time) == len("2026-11-18T07:20:01.123Z") and time.endswith("Z") and time[10] == "T"


def test_a_line_of_json_is_an_object_with_the_same_keys(own: logging.Logger) -> None:
    stream = printed("json")
    logs.event(LOG, logs.WARNING, "lease lost", {"run": "r1"}, command="a/1", losses=3, lost=True)
    [line] = stream.getvalue().splitlines()
    told = json.decode(line)
    assert list(told) == ["time", "level", "logger", "event", "run", "command", "losses", "lost"]
    assert told | {"time": ""} == {
        "time": "",
        "level": "WARNING",
        "logger": "refold.test",
        "event": "lease lost",
        "run": "r1",
        "command": "a/1",
        "losses": 3,
        "lost": True,
    }


def test_a_field_cannot_replace_what_every_line_has(own: logging.Logger) -> None:
    stream = printed("json")
    logs.event(LOG, logs.INFO, "as it is", {"level": "ERROR", "event": "another"})
    told = json.decode(stream.getvalue())
    assert (told["level"], told["event"]) == ("INFO", "as it is")


def test_a_field_without_a_value_is_left_out(own: logging.Logger) -> None:
    stream = printed("text")
    logs.event(LOG, logs.INFO, "said", run="", item=None, losses=0)
    assert stream.getvalue().endswith(" said losses=0\n")


@pytest.mark.parametrize("mode", ["text", "json"])
@pytest.mark.parametrize("bad", ["a\nb", "a\x1b[31mb", "a\x9bb", "a\u202eb", "a\u2028b", "a\x00b", "a\U000e0001b"])
def test_control_codes_are_spelt_out_and_an_event_stays_on_one_line(own: logging.Logger, mode: str, bad: str) -> None:
    stream = printed(mode)
    logs.event(LOG, logs.INFO, f"words {bad}", run=bad)
    text = stream.getvalue()
    assert text.endswith("\n") and text[:-1].isprintable()
    if mode == "json":
        assert (json.decode(text)["run"], json.decode(text)["event"]) == (bad, f"words {bad}")


def test_a_value_with_spaces_or_quotes_is_quoted_so_that_fields_can_be_told_apart(own: logging.Logger) -> None:
    stream = printed("text")
    logs.event(LOG, logs.INFO, "said", name='a run="x"', step="a=b")
    assert stream.getvalue().endswith(' said name="a run=\\"x\\"" step="a=b"\n')


@pytest.mark.parametrize("mode", ["text", "json"])
def test_text_that_cannot_be_encoded_is_logged_all_the_same(own: logging.Logger, mode: str) -> None:
    stream = printed(mode)
    logs.event(LOG, logs.INFO, "said \udcff", name="\udcff")
    assert "udcff" in stream.getvalue()


def test_a_long_value_is_cut(own: logging.Logger) -> None:
    stream = printed("json")
    logs.event(LOG, logs.INFO, "said", why="x" * (logs.LONGEST + 5))
    assert json.decode(stream.getvalue())["why"].endswith("x… (5 characters more)")


def test_a_traceback_stands_in_indented_lines_of_text_and_in_a_key_of_json(own: logging.Logger) -> None:
    try:
        raise KeyError("step\n2026-11-18T07:20:01.123Z INFO refold.test forged")
    except KeyError as error:
        text, data = printed("text"), None
        logs.event(LOG, logs.ERROR, "broken", run="r", error=error)
        data = printed("json")
        logs.event(LOG, logs.ERROR, "broken", run="r", error=error)
    head, *rest = text.getvalue().splitlines()
    assert head.endswith("ERROR refold.test broken run=r")
    assert rest[0] == "    Traceback (most recent call last):" and all(line.startswith("    ") for line in rest)
    [line] = data.getvalue().splitlines()
    assert "test_engine_log.py" in json.decode(line)["traceback"]


def test_a_traceback_whose_secrets_were_taken_out_is_shown_as_it_is_given(own: logging.Logger) -> None:
    stream = printed("json")
    logs.event(LOG, logs.ERROR, "broken", error="Traceback\nKeyError: ***\n")
    assert json.decode(stream.getvalue())["traceback"] == "Traceback\nKeyError: ***"


def test_events_below_the_level_are_not_printed(own: logging.Logger) -> None:
    stream = printed("text", "warning")
    logs.event(LOG, logs.INFO, "not this")
    logs.event(LOG, logs.WARNING, "but this")
    assert "not this" not in stream.getvalue() and "but this" in stream.getvalue()


def test_to_set_it_up_again_replaces_what_was_printed_before(own: logging.Logger) -> None:
    before, after = printed("text"), printed("text")
    logs.event(LOG, logs.INFO, "said")
    assert (before.getvalue(), after.getvalue().count("said")) == ("", 1)


def test_a_program_that_sets_up_its_logging_gets_every_record_with_its_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "refold"):
        logs.event(LOG, logs.DEBUG, "command claimed", run="r", command="a/1")
    [record] = caplog.records
    assert (record.getMessage(), record.fields) == ("command claimed", {"run": "r", "command": "a/1"})  # type: ignore[attr-defined]


def test_where_nobody_has_set_it_up_errors_go_to_stderr_and_nothing_else_does() -> None:
    script = (
        "from refold import logs\n"
        "log = logs.logger('test')\n"
        "logs.event(log, logs.WARNING, 'a lost lease')\n"
        "logs.event(log, logs.ERROR, 'a defect', error=KeyError('x'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "a lost lease" not in done.stderr
    assert "a defect\nKeyError: 'x'\n" in done.stderr


def test_where_steps_are_listened_to_an_error_is_still_printed_once() -> None:
    script = (
        "from refold import logs\n"
        "from refold.executors.inline import collect_logs\n"
        "collect_logs()\n"
        "logs.event(logs.logger('test'), logs.WARNING, 'a lost lease')\n"
        "logs.event(logs.logger('test'), logs.ERROR, 'a defect')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "a defect\n"


def test_bodies_are_heard_from_info_on_and_the_engine_stays_quiet() -> None:
    script = (
        "import logging\n"
        "from refold import logs\n"
        "from refold.executors.inline import collect_logs\n"
        "collect_logs()\n"
        "print(logging.getLogger('mine').isEnabledFor(logging.INFO), logs.logger('test').isEnabledFor(logging.INFO))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_what_the_engine_logs_while_a_step_runs_is_no_line_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    collect_logs()
    token = log_receiver.set(lambda stream, text: said.append(text))
    try:
        logs.event(LOG, logs.ERROR, "of the engine")
        logging.getLogger("mine").error("of the step")
    finally:
        log_receiver.reset(token)
        root.handlers[:] = before
        root.setLevel(level)
    assert said == ["ERROR mine: of the step"]


def test_import_refold_loads_no_logging() -> None:
    script = "import sys, refold; print('logging' in sys.modules, 'refold.logs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
