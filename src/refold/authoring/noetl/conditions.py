"""Conditions of NoETL files: which arcs can handle a failure, names of events, and rules of admission."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from refold.authoring.reading import Fields
from refold.templates import paths_of

ERRORS = {("output", "status"), ("output", "error")}
Of = Literal["step", "loop", "cursor"]
_SPELT = {"call.done": "step.done", "call.error": "step.failed"}
SPELT: Mapping[Of, Mapping[str, str]] = {
    "step": _SPELT,
    "loop": {"call.done": "loop.done", "step.done": "loop.done", "call.error": "step.failed"},
    "cursor": {**_SPELT, "loop.done": "step.done"},
}
QUOTED = re.compile(r"(['\"])([a-z_]+\.[a-z_]+)\1")


def listens(when: Any) -> str:
    """To which outcome: an arc that reads how the step has ended listens to both."""
    paths = paths_of(when) if isinstance(when, str) else ()
    return "both" if any(path[0] == "event" or path[:2] in ERRORS for path in paths) else "success"


def respelt(when: Any, of: Of) -> Any:
    """Names of events, each by the one name that the engine gives it."""
    if not isinstance(when, str) or not any(path[0] == "event" for path in paths_of(when)):
        return when
    names = SPELT[of]
    return QUOTED.sub(lambda found: f"{found[1]}{names.get(found[2], found[2])}{found[1]}", when)


def admission(when: Any, admit: Fields | None) -> Any:
    """Both must let it in: the old condition, and the first rule that holds."""
    if admit is None:
        return when
    rules = [] if when is None else [[{"$first": [[when, False]]}, False]]  # unless the condition holds
    for rule in admit.get("rules", ()):
        decided: Fields | None = rule.get("then") or rule.get("else")
        if decided is not None:
            rules.append([rule.get("when", True), decided.get("allow", True)])
    return {"$first": rules}
