"""What can be started: plans, playbooks, and workflows in Python. Importing this file loads none of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from typing import TypeGuard

    from refold.core.plan import Plan
    from refold.playbooks.playbook import Playbook
    from refold.python.events import StartEvent
    from refold.python.workflow import Flow, Workflow

    AnyWorkflow: TypeAlias = Plan | Playbook | Workflow[Any] | type[Workflow[Any]] | Flow[..., Any]
    StartInput: TypeAlias = Mapping[str, Any] | StartEvent | None


def is_playbook(workflow: Any) -> "TypeGuard[Playbook]":
    """Whether it was read from a YAML file; the reader of such files is imported only if it may be one."""
    from refold.core.plan import Plan

    if not isinstance(workflow, Struct) or isinstance(workflow, Plan):
        return False
    from refold.playbooks.playbook import Playbook

    return isinstance(workflow, Playbook)
