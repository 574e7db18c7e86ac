"""What a worker tells: lines, faults and results without secrets, and nothing changed where there are none."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from refold import Engine, RunFailed
from refold.core.commands import Command
from refold.core.outcomes import Cancelled, Failed, Fault, Outcome, Parked, SetKey, Succeeded
from refold.errors import ToolFailed
from refold.ports import Done, Lease, Program, ProgramEnd, Say, ToolCall
from refold.secrets.redaction import RedactedPrograms, SecretRedaction
from refold.secrets.redactor import Redactor
from refold.settings import Settings
from refold.wiring import WallClock, open_process, open_secrets
from refold.worker.leases import PatientDesk
from refold.worker.output import TryOutput
from refold.worker.run_tool import NO_REDACTION, redacted, run_tool
from tests.tools.calls import one_step

SECRET = "correct-horse-battery"
LEASE = Lease(
    run="r",
    command=Command(id="a/1", step="a", visit=1, attempt=1, tool="t"),
    worker="w",
    generation=1,
    until=0,
    claimed_at=0,
    plan="p",
)


def redaction() -> SecretRedaction:
    redactor = Redactor()
    redactor.remember(SECRET)
    return SecretRedaction(redactor)


async def outcome_of(value: Any) -> Outcome:
    async def tool(call: ToolCall) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return (await run_tool(LEASE, {}, {"t": tool}, WallClock(), None, redaction())).outcome


async def test_a_result_with_a_secret_fails_the_step_with_the_path() -> None:
    outcome = await outcome_of({"a": [1, {"b": f"x{SECRET}"}]})
    assert isinstance(outcome, Failed)
    assert outcome.fault.kind == "secret" and outcome.fault.retryable is False
    assert outcome.fault.data == {"path": "$.a[1].b"} and "$.a[1].b" in outcome.fault.message
    assert "in refold/v1, declare the output secret" in outcome.fault.message and SECRET not in str(outcome)


async def test_a_result_without_one_is_told_as_it_is() -> None:
    value = {"a": [1, None, "x"], "$sealed": "1.x"}
    outcome = await outcome_of(value)
    assert isinstance(outcome, Succeeded) and outcome.result is value


@pytest.mark.parametrize(
    "said",
    [
        Done(Succeeded(1), writes=(SetKey("token", SECRET),)),
        Done(Succeeded(1), usage={SECRET: 1}),
        Parked(until=5, progress={"so far": SECRET}),
        Cancelled(SECRET),
    ],
    ids=lambda said: type(said).__name__,
)
async def test_whatever_else_a_tool_tells_holds_no_secret_either(said: Any) -> None:
    outcome = await outcome_of(said)
    assert isinstance(outcome, Failed) and outcome.fault.kind == "secret" and SECRET not in str(outcome)


async def test_the_reason_of_a_wait_is_redacted_and_the_try_still_waits() -> None:
    outcome = await outcome_of(Parked(until=5, reason=f"try 2: no user {SECRET}", progress={"so far": 1}))
    assert outcome == Parked(until=5, reason="try 2: no user ***", progress={"so far": 1})


async def test_a_failure_that_writes_a_secret_writes_nothing() -> None:
    async def tool(call: ToolCall) -> Done:
        return Done(Failed(Fault("x")), writes=(SetKey("token", SECRET),))

    done = await run_tool(LEASE, {}, {"t": tool}, WallClock(), None, redaction())
    assert isinstance(done.outcome, Failed) and done.outcome.fault.kind == "secret" and done.writes == ()


class Told:
    """A desk that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None:
        self.told.extend(lines)

    async def record(self, lease: Lease, key: str, outcome: Outcome) -> None:
        self.told.append(outcome)


async def test_what_a_body_publishes_and_records_before_it_is_over_holds_no_secret() -> None:
    desk: Any = Told()
    body = PatientDesk(desk, LEASE, WallClock(), 0.1, redaction())
    await body.publish([{"stream": "event", "data": {"token": [SECRET]}, "text": f"it is {SECRET}"}, {"n": 1}])
    await body.record("a", Failed(Fault("x", f"no {SECRET}")))
    await body.record("b", Succeeded(1))
    with pytest.raises(ToolFailed, match="contains a secret"):
        await body.record("c", Succeeded({"a": SECRET}))
    shown = {"stream": "event", "data": {"token": ["***"]}, "text": "it is ***"}
    assert desk.told == [shown, {"n": 1}, Failed(Fault("x", "no ***")), Succeeded(1)]


async def test_every_part_of_a_fault_is_redacted() -> None:
    fault = Fault(
        SECRET, SECRET, f"x.{SECRET}", f"line\n{SECRET}", SECRET, True, 1.5, {SECRET: [SECRET, {"a": f"b {SECRET}"}]}
    )
    for error in (ToolFailed(fault), Failed(fault)):
        outcome = await outcome_of(error)
        assert isinstance(outcome, Failed)
        told = outcome.fault
        assert told == Fault("***", "***", "x.***", "line\n***", "***", True, 1.5, {"***": ["***", {"a": "b ***"}]})


async def test_what_an_error_says_and_its_traceback_are_redacted() -> None:
    outcome = await outcome_of(ValueError(f"no such user: {SECRET!r}"))
    assert isinstance(outcome, Failed)
    assert outcome.fault.message == "no such user: '***'" and SECRET not in outcome.fault.traceback


async def test_lines_are_redacted() -> None:
    published: list[Any] = []

    async def publish(lease: Lease, lines: Sequence[Any]) -> None:
        published.extend(lines)

    printed = TryOutput(LEASE, publish, WallClock(), redaction())
    printed.say("stdout", f"token: {SECRET}")
    await printed.close()
    assert [line["text"] for line in published] == ["token: ***"]


def test_where_there_are_no_secrets_nothing_is_touched() -> None:
    done, fault = Done(Succeeded({"a": SECRET})), Fault("x", SECRET)
    assert redacted(done, NO_REDACTION) is done and redacted(done, SecretRedaction()) is done
    assert NO_REDACTION.text(SECRET) is SECRET and NO_REDACTION.fault(fault) is fault
    assert SecretRedaction().text(SECRET) is SECRET and SecretRedaction().fault(fault) is fault
    NO_REDACTION.check_result(SECRET)
    SecretRedaction(Redactor()).check_result(SECRET)
    assert SecretRedaction(Redactor()).fault(fault) is fault


class NoPrograms:
    started: list[Program]

    def __init__(self) -> None:
        self.started = []

    async def run(self, program: Program, say: Say | None = None) -> ProgramEnd:
        self.started.append(program)
        return ProgramEnd(code=0)

    async def close(self) -> None:
        self.started.clear()


async def test_a_program_with_a_secret_among_its_arguments_is_not_started() -> None:
    programs = NoPrograms()
    guarded = RedactedPrograms(programs, redaction())
    for bad in (Program(argv=["curl", "-H", f"x: {SECRET}"]), Program(argv=["ls"], cwd=f"/tmp/{SECRET}")):
        with pytest.raises(ToolFailed, match="`env` or `stdin`") as caught:
            await guarded.run(bad)
        assert SECRET not in str(caught.value.fault)
    good = Program(argv=["curl"], env={"TOKEN": SECRET}, stdin=SECRET.encode())
    assert (await guarded.run(good)).code == 0
    assert [structs.replace(each, keep=good.keep) for each in programs.started] == [good]
    await guarded.close()
    assert programs.started == []


async def test_what_would_be_refused_for_another_reason_is_told_without_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets: list[Any] = []

    async def odd(call: ToolCall) -> Any:
        await secrets[0].read("token")
        return {("x", SECRET): object()}

    monkeypatch.setenv("REFOLD_SECRET_TOKEN", SECRET)
    async with open_process({"odd": odd}, settings=Settings(processes=1)) as process:
        secrets.append(process.secrets)
        fault = await _fault(process.engine, "odd")
    assert fault.kind == "secret" and "$ (the name of a field)" in fault.message and SECRET not in str(fault)


async def _fault(engine: Engine, tool: str) -> Fault:
    with pytest.raises(RunFailed) as caught:
        await engine.run(one_step(tool))
    fault = caught.value.error.fault
    assert isinstance(fault, Fault)
    return fault


def test_settings_say_where_secrets_are(tmp_path: Path) -> None:
    chosen = Settings.from_environment(
        {"REFOLD_SECRETS": "/s", "REFOLD_SECRETS_FOLDER": "/f", "REFOLD_KEY_FILE": "/k", "REFOLD_KEYRING": "true"}
    )
    room = open_secrets(chosen, "a.db")
    assert (str(room.file.path), str(room.keys.path)) == ("/s", "/k")
    assert str(open_secrets(Settings(), tmp_path / "a.db").file.path) == str(tmp_path / "a.db-secrets")
    assert [type(each).__name__ for each in room.providers()] == ["Environment", "Folder", "Keyring"]


def test_a_process_that_reads_no_secret_loads_nothing_for_them() -> None:
    code = (
        "import sys, refold.wiring, asyncio\n"
        "async def main():\n"
        "    async with refold.wiring.open_engine(): pass\n"
        "asyncio.run(main())\n"
        "print(sorted(m for m in sys.modules if m.startswith(('refold.secrets.', 'cryptography', 'platformdirs'))))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "['refold.secrets.access', 'refold.secrets.hidden', 'refold.secrets.redaction']"
