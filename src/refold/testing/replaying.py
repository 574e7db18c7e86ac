"""Results of a run that really happened, in a file, given to tests in the place of tools."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from refold.authoring.workflows.definition import Definition
from refold.core.outcomes import Failed, Fault, Outcome, Succeeded, TimedOut
from refold.errors import InvalidValue, NotFound, ToolFailed
from refold.ports import Call, Meanwhile, Memory
from refold.testing.fakes import Called

FORMAT = "refold-recording/1"


class Recorded(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What came of one call: a tool's, by its command, or a durable one that a body has made, by its key."""

    workflow: str
    step: str
    command: str  # step/visit, and item and task if there are any
    tries: list[Outcome]  # one after the other; the last is for all that follow
    call: str = ""  # the key of a durable call
    events: Any = None  # for which the body was run that made it


class Recording(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    format: str
    workflow: str
    run: str
    input: Any = None
    calls: list[Recorded] = []


def write(recording: Recording, file: str | os.PathLike[str]) -> None:
    Path(file).write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n")


def read(file: str | os.PathLike[str]) -> Recording:
    """Raises NotFound or InvalidValue."""
    try:
        found = msgspec.json.decode(Path(file).read_bytes(), type=Recording)
    except FileNotFoundError:
        raise NotFound(f"there is no recording {os.fspath(file)}: `refold runs record RUN -o FILE` makes one") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidValue(os.fspath(file), f"is no recording: {error}") from None
    if found.format != FORMAT:
        raise InvalidValue(os.fspath(file), f"is a recording of another kind: {found.format!r} and not {FORMAT!r}")
    return found


class Replay:
    """Gives out what was recorded, and remembers the calls for which there is nothing."""

    def __init__(self, recordings: Sequence[Recording], live: Sequence[str] = ()) -> None:
        self.live = frozenset(live)
        self.missing: list[str] = []
        self._tools: dict[str, Recorded] = {}
        self._bodies: dict[str, list[Recorded]] = {}
        for each in (call for recording in recordings for call in recording.calls):
            if each.call:
                self._bodies.setdefault(each.step, []).append(each)
            else:
                self._tools.setdefault(each.command, each)

    def of_tool(self, called: Called) -> tuple[bool, Any]:
        """Whether there is something, and what. Raises what was recorded as a failure."""
        if called.kind in self.live or called.step in self.live:
            return False, None
        found = self._tools.get(called.command)
        if found is None:
            self._miss(f"{called.command} ({called.kind})")
            return False, None
        called.faked = True
        outcome = found.tries[min(called.attempt, len(found.tries)) - 1]
        match outcome:
            case Succeeded(result=result):
                return True, result
            case Failed(fault=fault):
                raise ToolFailed(fault)
            case TimedOut():
                raise ToolFailed(Fault("timeout", "as it was recorded", retryable=True))
            case _:
                return True, outcome

    def of_body(self, call: Call, definition: Definition) -> Call:
        """The same call, in which the durable calls are known that were recorded for such events."""
        if call.command.step in self.live or call.meanwhile is None:
            return call
        events = msgspec.to_builtins(call.input["events"])
        calls = self._bodies.get(call.command.step, [])
        known = {each.call: each.tries[-1] for each in calls if each.events == events}
        return structs.replace(call, meanwhile=_Knowing(call.meanwhile, known, call.command.id, self._miss))

    def _miss(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


class _Knowing:
    """A desk that remembers more than it was told."""

    def __init__(self, desk: Meanwhile, known: dict[str, Outcome], command: str, miss: Any) -> None:
        self._desk, self._known, self._command, self._miss = desk, known, command, miss

    async def recall(self) -> Memory:
        memory = await self._desk.recall()
        return structs.replace(memory, recorded={**self._known, **memory.recorded})

    async def record(self, key: str, outcome: Outcome) -> None:
        self._miss(f"{self._command} ({key})")
        await self._desk.record(key, outcome)

    async def publish(self, lines: Sequence[Any]) -> None:
        await self._desk.publish(lines)
