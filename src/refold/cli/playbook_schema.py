"""The schema of playbooks, for the tools and sources that come with Refold and those that packages add."""

from typing import Any

from refold.playbooks.schema import schema
from refold.sources.catalog import installed_sources
from refold.tools.catalog import installed_tools


def playbook_schema() -> dict[str, Any]:
    return dict(schema(installed_tools(), installed_sources()))
