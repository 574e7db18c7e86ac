"""A pipeline as data: tasks that one worker runs in order as a unit, with rules about what follows each try."""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, json

Template = Any
"""A JSON value that may contain expressions; only `Evaluate` looks inside, never the core."""

MOST_RUNS = 1_000_000  # of tasks, in one pipeline
TOOL = "pipeline"


# Not `Literal`: that would replace a decoded text by the default itself, which is left out when it is encoded again, so
# that a plan that was read would have other bytes, and another hash, than the plan that was stored.
Action = Annotated[str, Meta(pattern="^(continue|retry|jump|break|fail)$")]
Backoff = Annotated[str, Meta(pattern="^(none|fixed|linear|exponential)$")]
Unmatched = Annotated[str, Meta(pattern="^(|continue|fail)$")]


class TaskData(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What all of it has in common: it is part of a plan."""


class Rule(TaskData, frozen=True):
    """What to do after a try of a task, if `when` holds; the first that does is followed."""

    when: Template = None  # None: always
    do: Action = "continue"
    set: dict[str, Template] = {}
    to: str = ""  # the task that `jump` names
    attempts: Template = 3  # tries in all
    backoff: Backoff = "none"
    delay: Template = 1.0  # seconds


class Started(TaskData, frozen=True):
    """A playbook that a task starts as a child."""

    plan: str  # its hash; empty: the workflow itself
    path: str = ""
    want: str = ""  # the step of the child whose result it is; empty: the child's own
    detached: bool = False  # go on at once


class Task(TaskData, frozen=True):
    name: str
    kind: str
    settings: dict[str, Any] = {}  # keys of the tool that are taken as they are written
    rendered: dict[str, Template] = {}  # such keys that a dialect renders all the same
    keys: dict[str, Template] = {}
    quoted: dict[str, Literal["shell", "sql", "python"]] = {}  # keys whose values are quoted for their places
    credentials: tuple[str, ...] = ()  # keys whose text names an entry of the keychain
    input: dict[str, Template] = {}
    set: dict[str, Template] = {}
    rules: tuple[Rule, ...] = ()
    unmatched: Unmatched = ""  # when there are rules and none holds; empty: by the outcome
    timeout: Template = None  # seconds
    child: Started | None = None
    returns: tuple[str, ...] = ()  # fields that its result must have
    select: dict[str, str] = {}  # names by which paths into its result can be read besides


class Claim(TaskData, frozen=True):
    """Rows that a pipeline is run for, claimed a few at a time until there are none."""

    task: Task
    row: str  # what templates call one
    rows: Template = 1  # of one claim
    at_once: Template = 1
    attempts: Template = 3  # tries of the rows of a claim
    pullers: Template = 1  # claims at once
    whole: bool = False  # one run for all rows of a claim, as `frame.rows`


class TaskPipeline(TaskData, frozen=True, tag="pipeline"):
    """`language` is that of the templates; `results` are names in the scope that are results of steps."""

    tool: ClassVar[str] = TOOL

    tasks: tuple[Task, ...]
    language: str = "refold"
    single: bool = False  # the result is that of the only task, and no map of all
    results: tuple[str, ...] = ()
    keychain: tuple[dict[str, Any], ...] = ()
    own: tuple[str, ...] = ()  # keys that are set with the scope `step.`
    most_runs: int = MOST_RUNS
    timeout: float | None = None  # of the whole, waits between tries included
    playbook: str = ""  # its path or name; what is kept for all of its runs is kept by this
    about: dict[str, Any] = {}  # of the playbook: its path, its version
    select: dict[str, str] = {}  # names by which paths into the result can be read besides
    claim: Claim | None = None
    secret: bool = False  # its result is stored encrypted
    schema: dict[str, Any] | None = None  # what a secret result must fit, for it can be checked only while it is open
    opens: bool = False  # what it is given may hold such results


MARK = "$sealed"
"""A sealed result is stored as `{"$sealed": text}`. Data of the user may have that form too, for a remote service may
answer so; it must neither be opened nor be taken for a damaged secret. So a run keeps the digests of what its secret
steps have reported, and a command carries those that occur in its input, beside it."""

_encode = json.Encoder().encode


def digest(value: Any) -> str:
    """The same as the name of the blob that holds the value, if it is large."""
    return hashlib.sha256(_encode(value)).hexdigest()


def looks_sealed(value: Any) -> bool:
    return type(value) is dict and value.keys() == {MARK} and isinstance(value[MARK], str)


def sealed_in(value: Any, known: set[str]) -> tuple[str, ...]:
    """Digests of all that is sealed in a value."""
    return tuple(sorted(set(_found(value, known)))) if known else ()


def _found(value: Any, known: set[str]) -> Iterator[str]:
    if looks_sealed(value):
        name = digest(value)
        if name in known:
            yield name
    elif isinstance(value, dict):
        for each in value.values():
            yield from _found(each, known)
    elif isinstance(value, list):
        for each in value:
            yield from _found(each, known)
