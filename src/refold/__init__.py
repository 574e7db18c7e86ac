"""Refold: durable workflows for Python, as a log of facts, a pure fold and one commit per step.

`refold.plan` has workflows as data, `refold.stages` has pipelines of workflows, `refold.errors` has all errors, and
`refold.tool_api` is for authors of tools and sources.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.core.plan import Retry
    from refold.errors import RefoldError, RunCancelled, RunFailed
    from refold.python.context import Context, SyncContext
    from refold.python.events import ErrorEvent, Event, InputRequestEvent, InputResponseEvent, StartEvent, StopEvent
    from refold.python.session import Live
    from refold.python.workflow import Collect, Ray, Workflow, flow, step
    from refold.python.workflow import (
        resource as resource,  # not in __all__: the standard library has a module `resource`
    )
    from refold.runtime.engine import Engine
    from refold.runtime.handle import Handle
    from refold.runtime.sync import SyncEngine, SyncHandle
    from refold.settings import Settings
    from refold.wiring import open_engine, options, run_sync
    from refold.wiring.playbook_files import playbook

__version__ = "0.1.0"

__all__ = [
    "Collect",
    "Context",
    "Engine",
    "ErrorEvent",
    "Event",
    "Handle",
    "InputRequestEvent",
    "InputResponseEvent",
    "Live",
    "Ray",
    "RefoldError",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "Settings",
    "StartEvent",
    "StopEvent",
    "SyncContext",
    "SyncEngine",
    "SyncHandle",
    "Workflow",
    "flow",
    "open_engine",
    "options",
    "playbook",
    "run_sync",
    "step",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: `import refold` alone costs next to nothing."""
    if name in ("Collect", "Ray", "Workflow", "flow", "resource", "step"):
        from refold.python import workflow

        return getattr(workflow, name)
    if name in ("ErrorEvent", "Event", "InputRequestEvent", "InputResponseEvent", "StartEvent", "StopEvent"):
        from refold.python import events

        return getattr(events, name)
    if name in ("Context", "SyncContext"):
        from refold.python import context

        return getattr(context, name)
    if name == "Live":
        from refold.python.session import Live

        return Live
    if name in ("open_engine", "options", "run_sync"):
        from refold import wiring

        return getattr(wiring, name)
    if name == "playbook":
        from refold.wiring.playbook_files import playbook

        return playbook
    if name == "Engine":
        from refold.runtime.engine import Engine

        return Engine
    if name == "Handle":
        from refold.runtime.handle import Handle

        return Handle
    if name in ("SyncEngine", "SyncHandle"):
        from refold.runtime import sync

        return getattr(sync, name)
    if name == "Settings":
        from refold.settings import Settings

        return Settings
    if name == "Retry":
        from refold.core.plan import Retry

        return Retry
    if name in ("RefoldError", "RunCancelled", "RunFailed"):
        from refold import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'refold' has no attribute {name!r}")
