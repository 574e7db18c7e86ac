"""The schema of playbooks, for the tools that come with Refold."""

from typing import Any

from refold.authoring.schema import schema
from refold.tools.catalog import CATALOG


def playbook_schema() -> dict[str, Any]:
    return dict(schema(CATALOG))
