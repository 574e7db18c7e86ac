"""Bytes and back: every fact, letter, command and state, and what is refused at the door."""

import math
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.core import codec
from refold.core.commands import Command, Letter, LetterCancel, LetterEnded, LetterPause, LetterResume, LetterStart
from refold.core.facts import (
    BodyWoke,
    BudgetExceeded,
    Bypassed,
    CallsAwaited,
    CallSettled,
    CancelAsked,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    Dropped,
    Entered,
    EventsTaken,
    Fact,
    FanOutEntered,
    GateDecided,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsReopened,
    ItemsRetried,
    ItemsSettled,
    LoopLeft,
    Move,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    Parent,
    PassBegan,
    RequestAnswered,
    Routed,
    RunEnded,
    RunEnding,
    RunMigrated,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    RunTimedOut,
    SignalReceived,
    SignalTaken,
    Skipped,
    StepFault,
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.outcomes import (
    AddTo,
    AppendTo,
    Awaited,
    Blob,
    Cancelled,
    DeleteKey,
    Failed,
    Fault,
    Outcome,
    Parked,
    PutIf,
    Question,
    Report,
    Sent,
    SetKey,
    Succeeded,
    Suspended,
    TimedOut,
    Write,
)
from refold.core.state import FanOut, RunState, StepState
from refold.errors import Corrupt, InvalidValue, UnknownFact

FAULT = Fault("odd", "why", "ValueError", "trace", 7, False, 1.5, {"x": [1]})
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded({"x": 1}),
    Succeeded(blob=Blob("hash", 70_000)),
    Failed(FAULT),
    TimedOut(2.5),
    Cancelled("enough"),
    Parked(5, "go", [1], "because"),
    Suspended((Awaited("k", 5, "go", "plan", {"x": 1}, "step", True),), {"at": 1}),
)
WRITES: tuple[Write, ...] = (SetKey("a", 1), DeleteKey("b"), AddTo("c", 1.5), AppendTo("d", [1]), PutIf("e", 3, None))
MOVES: tuple[Move, ...] = (
    Entered("a", 1),
    Took("a", 1, (0, 2), {"x": 1}, FAULT, {0: {"page": 2}}),
    Bypassed("a", 2),
    Skipped(("a", "b")),
    Dropped(("c",)),
    PassBegan("a"),
    LoopLeft("a"),
)
ASKED = Sent("Approve", {"prompt": "well?"}, asks=Question("q", "Approved", {"yes": True}))
SENT = (Sent("Page", {"url": "x"}), Sent("Page", None, Blob("hash", 70_000), {"by": 1}), ASKED)
REPORT = Report(2, Succeeded(1), 3, "worker", 4, 5, 6, 7, WRITES, {"tokens": 1.5}, SENT)
ERROR = StepFault("a", 1, "unhandled failure", FAULT)
FACTS: tuple[Fact, ...] = (
    RunStarted("plan", {"x": 1}, "name", "key", Parent("run", "a/1", "call"), 2),
    StepIssued("a", 1, 2, {"x": 1}, 3, 4, "go", "child"),
    *(StepSettled("a", 1, Report(1, outcome)) for outcome in OUTCOMES),
    StepSettled("a", 1, REPORT),
    FanOutEntered("a", 1, 2, [1, 2], Blob("hash", 1), {"x": 1}, window=3),
    ItemsIssued("a", 1, 0, 2, {"x": 1}),
    ItemsRetried("a", 1, ((0, 2, 5),)),
    ItemsSettled("a", 1, (REPORT, REPORT)),
    ItemsGivenUp("a", 1, (0, 1)),
    ItemsCancelled("a", 1, (0, 1), "ada", page=3),
    ItemsReopened("a", 1, (0, 1), "ada"),
    PageAsked("a", 1, 1, 2, 5),
    PageCame("a", 1, 1, REPORT),
    PageTaken("a", 1, 1, 2, {"at": 7}, (1,), ("x", "y"), {1: ("x",)}),
    PagesGivenUp("a", 1, 2, FAULT),
    EventsTaken("a", 3, (((2, 0),), ((2, 1), (4, 0)))),
    VisitFailed("a", 3, FAULT, "Failed"),
    RequestAnswered("q", Sent("Approved", {"request_id": "q", "yes": True})),
    Routed(MOVES),
    SignalReceived("go", [1], "ada"),
    SignalTaken("go", "a/1#k"),
    CallSettled("a/1", "k", Succeeded(1)),
    CallsAwaited("a/1", (Awaited("k", 5, "go", "child", {"x": 1}, "step", True),)),
    BodyWoke("a/1"),
    ChildEnded("child", "a/1", Failed(FAULT), "k", {"tokens": 1}),
    ChildUsed("child", "a/1", {"tokens": 2}, "k"),
    ChildContinued("child", "a/1", "next", "k", {"tokens": 3}),
    GateDecided("a", 1, "approve", "ada", {"x": 1}),
    RunPaused("ada"),
    RunResumed("ada"),
    CancelAsked("why", "ada"),
    RunTimedOut(1.5),
    RunEnding("failed", ERROR, ("a/1",), ("tidy",)),
    RunEnded("failed", {"x": 1}, Blob("hash", 1), ERROR, (ERROR,)),
    RunReopened(("a",), ("b", "c"), "ada", {"tokens": 5}),
    BudgetExceeded("tokens", 12, 10),
    RunMigrated("plan", "ada"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_there_is_a_fact_of_every_kind_here() -> None:
    assert {type(fact) for fact in FACTS} == set(get_args(Fact))
    assert {type(each) for each in (*OUTCOMES, *WRITES, *MOVES)} == {
        *get_args(Outcome),
        *get_args(Write),
        *get_args(Move),
    }


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back_as_it_went_in(fact: Fact) -> None:
    assert codec.decode_fact(codec.encode_fact(fact)) == fact


def test_the_kinds_of_facts_are_told_apart_by_their_names_in_the_log() -> None:
    kinds = [msgspec.json.decode(codec.encode_fact(fact))["type"] for fact in FACTS]
    assert len(set(kinds)) == len(get_args(Fact)) and "run_started" in kinds


def test_a_letter_and_a_command_come_back_as_they_went_in() -> None:
    parent = Parent("run", "a/1", "k")
    bodies = (LetterStart("p", parent, {"x": 1}, 2), LetterEnded(parent, Succeeded(1), {"t": 1.0}), LetterCancel("x"))
    for body in (*bodies, LetterPause(), LetterResume()):
        letter = Letter("key", "from", "to", body)
        assert codec.decode_letter(codec.encode_letter(letter)) == letter
    command = Command("a/1/0", "a", 1, 2, "tool", 0, {"x": 1}, "q", 5, 6, 7.5, [1], {"k": Succeeded(1)})
    assert codec.decode_command(codec.encode_command(command)) == command


def test_a_kind_of_a_newer_release_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownFact, match="'step_teleported' were written by a newer Refold"):
        codec.decode_fact(b'{"type":"step_teleported","step":"a"}')


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not readable"),
        (b"\xff", "not readable"),
        (b'{"type":"run_paused"', "not readable"),
        (b'{"type":"run_paused","by":3}', "a fact of kind 'run_paused' is not readable: Expected `str`"),
        (b'{"type":"routed","moves":[["flew","a",1]]}', "a fact of kind 'routed' is not readable"),
        (b"[]", "a fact has no kind"),
        (b"{}", "a fact has no kind"),
        (b'{"type":[]}', "a fact has no kind"),
        (b"[" * 100_000, "not readable"),
    ],
)
def test_unreadable_bytes_are_corrupt_and_no_unknown_kind(data: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=message) as refused:
        codec.decode_fact(data)
    assert not isinstance(refused.value, UnknownFact)


@pytest.fixture
def upcasters(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    older: dict[str, Any] = {}
    monkeypatch.setattr(codec, "UPCASTERS", older)
    yield older


def test_a_kind_of_an_older_release_is_read_as_what_it_means_today(upcasters: dict[str, Any]) -> None:
    upcasters["signalled"] = lambda old: {"type": "signal_received", "name": old["signal"], "value": old.get("data")}
    assert codec.decode_fact(b'{"type":"signalled","signal":"go","data":1}') == SignalReceived("go", 1)


def test_an_older_kind_that_cannot_be_read_is_corrupt_by_its_name(upcasters: dict[str, Any]) -> None:
    upcasters["signalled"] = lambda old: {"type": "signal_received", "name": old["signal"]}
    for data in (b'{"type":"signalled","signal":5}', b'{"type":"signalled"}'):
        with pytest.raises(Corrupt, match="a fact of kind 'signalled' is not readable"):
            codec.decode_fact(data)


def test_a_snapshot_comes_back_and_one_of_another_format_is_left_aside() -> None:
    state = RunState(run="run", seq=5, ctx={"x": [1, None]})
    data = codec.encode_snapshot(state)
    assert codec.decode_snapshot(data) == state
    assert codec.decode_snapshot(bytes([codec.SNAPSHOT_FORMAT + 1]) + data[1:]) is None
    assert codec.decode_snapshot(b"") is None
    assert codec.decode_snapshot(data[:-1]) is None
    assert codec.decode_snapshot(data[:1] + b"\xc1") is None


def test_bytes_that_are_no_utf8_are_corrupt_wherever_they_stand() -> None:
    text = b"x" * 100
    with pytest.raises(Corrupt, match="the value is not readable"):
        codec.unbox(b'"' + text + b'\xf8"')
    with pytest.raises(Corrupt, match="a fact is not readable"):
        codec.decode_fact(codec.encode_fact(SignalReceived("go", text.decode())).replace(b"xxx", b"\xf8\xf8\xf8"))
    data = codec.encode_snapshot(RunState(run="run", ctx={"x": text.decode()}))
    assert codec.decode_snapshot(data.replace(b"xxx", b"\xf8\xf8\xf8")) is None


def test_a_value_above_64_kib_is_boxed_and_one_just_below_is_not() -> None:
    assert codec.box("x" * (codec.BLOB_ABOVE - 2)) is None
    boxed = codec.box("x" * (codec.BLOB_ABOVE - 1))
    assert boxed is not None and boxed[0].size == codec.BLOB_ABOVE + 1
    assert codec.unbox(boxed[1]) == "x" * (codec.BLOB_ABOVE - 1)


def test_equal_values_have_one_blob() -> None:
    one, other = codec.box(["x" * 70_000]), codec.box(["x" * 70_000])
    assert one is not None and other is not None and one[0] == other[0]


@for_all(VALUES)
def test_every_value_that_is_let_in_comes_back_as_it_went_in(value: Any) -> None:
    codec.check_value(value)
    assert codec.unbox(msgspec.json.encode(value)) == value
    assert codec.decode_fact(codec.encode_fact(SignalReceived("go", value))) == SignalReceived("go", value)
    state = RunState(run="run", ctx={"x": value})
    assert codec.decode_snapshot(codec.encode_snapshot(state)) == state


@pytest.mark.parametrize(
    "value", ["", "\0", "\U0001f600", [], {}, {"": ""}, 0, -0.0, 1e308, True, None, 2**63, 2**80, -(2**80)]
)
def test_odd_values_that_json_can_hold_are_let_in(value: Any) -> None:
    codec.check_value(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "$: nan cannot be represented in JSON"),
        ({"a": [0, math.inf]}, "$.a[1]: inf cannot be represented in JSON"),
        ({"a": "\ud800"}, "$.a: a lone surrogate is not text"),
        ({"\ud800": 1}, "$: a lone surrogate is not text"),
        ([b"x"], "$[0]: a bytes is not a JSON value"),
        ({"a": {1, 2}}, "$.a: a set is not a JSON value"),
        ({"a": {1: 2}}, "$.a: the key 1 is not a string"),
        ({"a": object()}, "$.a: a object is not a JSON value"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        codec.check_value(value)
    assert str(refused.value) == message
    assert refused.value.path == message.split(":")[0]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_nested_too_deep_is_refused() -> None:
    codec.check_value(nested(codec.DEPTH_LIMIT))
    with pytest.raises(InvalidValue, match=f"nested deeper than {codec.DEPTH_LIMIT}"):
        codec.check_value(nested(codec.DEPTH_LIMIT + 1))


def test_the_path_of_a_refused_value_begins_where_the_caller_says() -> None:
    with pytest.raises(InvalidValue, match=r"^input\.n: "):
        codec.check_value({"n": math.nan}, "input")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (FanOut, {"running": "open", "skipped": "passed", "cancelled": "taken_back", "report_facts": "places"}),
        (StepState, {"kept_input": "given"}),
        (RunState, {"arc_inputs": "given", "undone": "lost"}),
    ],
)
def test_renamed_fields_keep_their_names_in_snapshots(kind: type[msgspec.Struct], names: dict[str, str]) -> None:
    fields = msgspec.structs.fields(kind)
    assert {each.name: each.encode_name for each in fields if each.name != each.encode_name} == names
