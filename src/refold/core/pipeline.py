"""The tasks of one step as data: one worker runs them in order, with rules about what follows each try.

The marks of sealed results are here too, because pipelines create them.
"""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, json

Template = Any
"""A JSON value that may contain expressions; only `Evaluate` looks inside, never the core."""

MOST_RUNS = 1_000_000  # how many tasks one pipeline may run
TOOL = "pipeline"


# Not `Literal`: that would replace a decoded text by the default itself, which is left out when it is encoded again, so
# that a plan that was read would have other bytes, and another hash, than the plan that was stored.
Action = Annotated[str, Meta(pattern="^(continue|retry|jump|break|fail)$")]
Backoff = Annotated[str, Meta(pattern="^(none|fixed|linear|exponential)$")]
Unmatched = Annotated[str, Meta(pattern="^(|continue|fail)$")]


class TaskData(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """The parent of all data of tasks, which is part of a plan."""


class Rule(TaskData, frozen=True):
    """What to do after a try of a task, if `when` holds. The first rule that holds is followed."""

    when: Template = None  # None: always
    do: Action = "continue"
    set: dict[str, Template] = {}
    to: str = ""  # the task that `jump` names
    attempts: Template = 3  # tries, the first included
    backoff: Backoff = "none"
    delay: Template = 1.0  # seconds


class Started(TaskData, frozen=True):
    """A playbook that a task starts as a child."""

    plan: str  # its hash; empty: the workflow itself
    path: str = ""
    want: str = ""  # the step of the child whose result is wanted; empty: the result of the child
    detached: bool = False  # continue without waiting for the child


class Task(TaskData, frozen=True):
    name: str
    kind: str
    settings: dict[str, Any] = {}  # keys of the tool that are not rendered
    rendered: dict[str, Template] = {}  # keys of that kind that the dialect of the playbook renders anyway
    keys: dict[str, Template] = {}
    quoted: dict[str, Literal["shell", "sql", "python"]] = {}  # keys whose values are quoted, and how
    credentials: tuple[str, ...] = ()  # keys whose text is the name of an entry of the keychain
    input: dict[str, Template] = {}
    set: dict[str, Template] = {}
    rules: tuple[Rule, ...] = ()
    unmatched: Unmatched = ""  # if no rule holds; empty: continue or fail by the outcome
    timeout: Template = None  # seconds
    child: Started | None = None
    returns: tuple[str, ...] = ()  # fields that the result must have
    select: dict[str, str] = {}  # names by which paths into its result can be read besides


class Claim(TaskData, frozen=True):
    """A task that claims rows. The pipeline runs for them, a few at a time, until there are none."""

    task: Task
    row: str  # the name of a row in templates
    rows: Template = 1  # rows per claim
    at_once: Template = 1
    attempts: Template = 3  # tries for the rows of a claim
    pullers: Template = 1  # claims that are processed at a time
    whole: bool = False  # run once for all rows of a claim, as `frame.rows`


class TaskPipeline(TaskData, frozen=True, tag="pipeline"):
    """The tasks of a step. `language` is the language of templates; `results` are the names of results of steps."""

    tool: ClassVar[str] = TOOL

    tasks: tuple[Task, ...]
    language: str = "refold"
    single: bool = False  # the result is the result of the only task, and not a map by task
    results: tuple[str, ...] = ()
    keychain: tuple[dict[str, Any], ...] = ()
    own: tuple[str, ...] = ()  # keys that are set in the scope `step.`
    most_runs: int = MOST_RUNS
    timeout: float | None = None  # seconds for all tasks, delays between tries included
    playbook: str = ""  # path or name of the playbook; values that all of its runs share are stored under it
    about: dict[str, Any] = {}  # path and version of the playbook
    select: dict[str, str] = {}  # names by which paths into the result can be read besides
    claim: Claim | None = None
    secret: bool = False  # its result is stored encrypted
    schema: dict[str, Any] | None = None  # JSON Schema of a secret result, checked before it is encrypted
    reads: str = ""  # of a JamJet file: how the data in its result is found, for its schema
    opens: bool = False  # the input may contain encrypted results, which it decrypts


MARK = "$sealed"
"""A sealed result is stored as `{"$sealed": text}`. User data may have that form too, because a remote service may
return it; it must not be decrypted, and is not a damaged secret. So a run keeps the digests of the results of its
secret steps, and a command carries the digests that occur in its input."""

_encode = json.Encoder().encode


def digest(value: Any) -> str:
    """Return the digest of a value; the blob of a large value has the same name."""
    return hashlib.sha256(_encode(value)).hexdigest()


def looks_sealed(value: Any) -> bool:
    return type(value) is dict and value.keys() == {MARK} and isinstance(value[MARK], str)


def sealed_in(value: Any, known: set[str]) -> tuple[str, ...]:
    """Return the digests of all sealed results in a value."""
    return tuple(sorted(set(_digests_in(value, known)))) if known else ()


def _digests_in(value: Any, known: set[str]) -> Iterator[str]:
    if looks_sealed(value):
        name = digest(value)
        if name in known:
            yield name
    elif isinstance(value, dict):
        for each in value.values():
            yield from _digests_in(each, known)
    elif isinstance(value, list):
        for each in value:
            yield from _digests_in(each, known)
