"""What a worker is told that fetches the next page of a source."""

from typing import Any

from refold.core.plan import Step
from refold.core.state import FanOut

SOURCE = "source"
"""The tool that does it."""


def page_input(run: str, step: Step, fan: FanOut) -> dict[str, Any]:
    assert step.loop is not None and step.loop.source is not None and fan.pulls is not None
    return {
        "kind": step.loop.source.kind,
        "settings": fan.pulls.settings,
        "cursor": fan.pulls.cursor,
        "most": step.loop.source.page,
        "owner": f"{run}/{step.name}/{fan.visit}",
    }
