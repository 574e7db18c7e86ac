"""Streams: a secret is found across lines and pieces, before anything is cut, and other lines are not kept waiting."""

import asyncio
import base64
import random
from collections.abc import Sequence
from typing import Any

import pytest

from refold.core.commands import Command
from refold.executors.output import LINE, MOST, TAIL, OutputLines
from refold.ports import Ending, Lease, LeftOut, Piece, Program, ProgramEnd, Say
from refold.secrets.redaction import RedactedPrograms, SecretRedaction
from refold.secrets.redactor import Redactor
from refold.wiring import WallClock
from refold.worker import output as printing
from refold.worker.output import TryOutput

SECRET = "Kx7-correct-horse-battery-9Q"
LEASE = Lease("run", Command("a/1", "a", 1, 1), "w", 1, 0, 0, "plan")


def redaction(*secrets: str) -> SecretRedaction:
    redactor = Redactor()
    for each in secrets or (SECRET,):
        redactor.remember(each)
    return SecretRedaction(redactor)


def shown_in_batches(lines: Sequence[str], chance: random.Random, knows: SecretRedaction) -> list[str]:
    """As `Printed` does it: what is not shown yet is given again with the next lines."""
    stream, found, waiting = knows.stream(), list[str](), list[str]()
    for line in lines:
        waiting.append(line)
        if chance.random() < 0.5:
            shown = list(stream(waiting, Ending.MORE))
            found, waiting = found + shown, waiting[len(shown) :]
    return found + list(stream(waiting, Ending.OVER))


@pytest.mark.parametrize("column", [1, 3, 7, 20, 60])
@pytest.mark.parametrize("spelling", ["plain", "base64", "hex"])
def test_a_secret_is_found_across_lines_however_they_come(spelling: str, column: int) -> None:
    spelt = {
        "plain": SECRET,
        "base64": base64.b64encode(SECRET.encode()).decode(),
        "hex": SECRET.encode().hex(),
    }[spelling]
    lines = [spelt[at : at + column] for at in range(0, len(spelt), column)]
    for seed in range(50):
        shown = shown_in_batches(["before", *lines, "after"], random.Random(seed), redaction())
        assert len(shown) == len(lines) + 2 and (shown[0], shown[-1]) == ("before", "after")
        left = "".join(shown[1:-1]).replace("*", "")
        assert len(left) <= 6, (seed, shown)  # three that were shown before they could be known, and the padding


def test_a_short_secret_is_found_in_a_line_that_was_cut_and_not_across_lines() -> None:
    stream = redaction("12345678").stream()
    assert list(stream([Piece("xx 1234"), "5678 yy"], Ending.OVER)) == ["xx ***", "*** yy"]
    assert list(stream(["1234", "5678"], Ending.OVER)) == ["1234", "5678"]


def test_a_line_waits_only_if_a_secret_may_have_begun_in_it() -> None:
    stream = redaction().stream()
    assert list(stream(["fine", "token: Kx7-corr"], Ending.MORE)) == ["fine"]
    assert list(stream(["token: Kx7-corr", "upt, not secret"], Ending.MORE)) == ["token: Kx7-corr", "upt, not secret"]


def test_the_beginning_of_a_secret_before_something_is_left_out_is_not_shown() -> None:
    code = base64.b64encode(SECRET.encode()).decode()
    stream = redaction().stream()
    note = LeftOut("(5 bytes more are left out)")
    assert list(stream(["x", code[:5], note], Ending.OVER)) == ["x", "***", note]
    assert list(redaction().stream()(["x", f"is {SECRET[:5]}"], Ending.CUT)) == ["x", "is ***"]
    assert list(redaction().stream()(["x", f"is {SECRET[:5]}"], Ending.OVER)) == ["x", f"is {SECRET[:5]}"]


def test_what_is_printed_goes_to_the_stream_without_secrets_across_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is sent at once, but for those that may hold the beginning of a secret."""
    published: list[Any] = []

    async def publish(lease: Lease, lines: Sequence[Any]) -> None:
        published.extend(lines)

    async def main() -> tuple[Any, ...]:
        printed = TryOutput(LEASE, publish, WallClock(), redaction())
        for line in ("one", SECRET[:12], SECRET[12:], "two"):
            printed.say("stdout", line)
            printed.say("stderr", f"beside {line[:1]}")
            while printed._waiting or printed._sending is not None:
                await asyncio.sleep(0)
        return await printed.rest()

    monkeypatch.setattr(printing, "AT_ONCE", 1)
    rest = asyncio.run(main())
    lines = [each["text"] for each in (*published, *rest) if each["stream"] == "stdout"]
    assert lines == ["one", "***", "***", "two"] and len(published) == 8


def test_what_printed_leaves_out_leaves_no_part_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async def publish(lease: Lease, lines: Sequence[Any]) -> None:
        raise AssertionError("it is too little")

    async def main() -> list[str]:
        printed = TryOutput(LEASE, publish, WallClock(), redaction())
        for line in ("one", SECRET[:6], SECRET[6:]):
            printed.say("stdout", line)
        return [line["text"] for line in await printed.rest()]

    monkeypatch.setattr(printing, "MOST", 230)
    assert asyncio.run(main()) == ["one", "***", "(1 lines more are left out)"]


def lines_of(data: bytes) -> tuple[list[str], OutputLines]:
    said: list[str] = []
    lines = OutputLines("stdout")
    lines.begin(lambda stream, text: said.append(text))
    for at in range(0, len(data), 1000):
        lines.feed(data[at : at + 1000])
    lines.end()
    return said, lines


def test_a_line_that_is_cut_is_marked_and_no_character_is_torn() -> None:
    said, _ = lines_of("é".encode() * LINE + b"\nshort\n")
    assert [type(each) for each in said] == [Piece, str, str] and "\ufffd" not in "".join(said)
    said, _ = lines_of(b"x" * (LINE - 1) + "é".encode() + b"y" * 2000)
    assert said == ["x" * (LINE - 1), "é" + "y" * 2000]
    said, _ = lines_of(b"\x80" * (LINE + 10))  # no text at all
    assert len("".join(said)) == LINE + 10


def test_what_is_left_out_of_a_stream_is_said_as_such() -> None:
    said, lines = lines_of(b"x" * 999 + b"\n" + (b"y" * 999 + b"\n") * (MOST // 1000 + 5))
    assert type(said[-1]) is LeftOut and "left out" in said[-1]
    assert lines.tail.decode().startswith("…") and len(lines.tail) == TAIL + len("…".encode())
    assert lines_of(b"short")[1].tail == b"short"


class Talking:
    """Programs that say this, and keep of it what they are asked to."""

    def __init__(self, out: bytes, err: bytes = b"") -> None:
        self.out, self.err = out, err

    async def run(self, program: Program, say: Say | None = None) -> ProgramEnd:
        if len(self.out) <= program.keep:
            return ProgramEnd(code=0, stdout=self.out, stderr=self.err)
        first, last = self.out[: program.keep - program.keep // 2], self.out[-(program.keep // 2) :]
        left_out = len(self.out) - program.keep
        return ProgramEnd(code=0, stdout=first, stdout_end=last, stderr=self.err, stdout_left_out=left_out)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("spelling", ["plain", "base64 in lines", "hex with spaces", "utf-16"])
async def test_the_output_of_a_program_is_never_cut_within_a_secret(spelling: str) -> None:
    data = SECRET.encode()
    spelt = {
        "plain": data,
        "base64 in lines": b"\n".join(base64.b64encode(data)[at : at + 6] for at in range(0, 40, 6)),
        "hex with spaces": data.hex(" ").encode(),
        "utf-16": SECRET.encode("utf-16-le"),
    }[spelling]
    for filling in (b"", b"." * 5000):
        for inside in range(1, len(spelt)):
            before, behind = b"." * (200 - inside) + spelt + b"." * 300, b"." * 300 + spelt + b"." * (200 - inside)
            out = before + filling + behind
            ended = await RedactedPrograms(Talking(out, b"err"), redaction()).run(Program(argv=["x"], keep=400))
            for kept in (ended.stdout, ended.stdout_end):
                is_whole = redaction().where(kept.decode()) == "$"  # all but the padding of a code
                assert len(kept.strip(b".")) <= 4 or is_whole, inside
            assert ended.left_out == len(out) - len(ended.stdout) - len(ended.stdout_end) and ended.stderr == b"err"
            assert out.startswith(ended.stdout) and out.endswith(ended.stdout_end)
    whole = await RedactedPrograms(Talking(b"x" * 300), redaction()).run(Program(argv=["x"], keep=100))
    assert len(whole.stdout) == len(whole.stdout_end) == 50 and whole.left_out == 200
