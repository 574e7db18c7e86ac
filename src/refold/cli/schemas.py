"""The schema of playbooks, for the tools that come with Refold."""

from typing import Any

from refold.authoring.schema import playbook_schema as of_tools
from refold.tools.catalog import CATALOG


def playbook_schema() -> dict[str, Any]:
    return of_tools(CATALOG)
