"""The schema of playbooks, for the tools and sources that come with Refold and those that packages add."""

from typing import Any

from refold.playbooks.schema import schema
from refold.sources.kinds import kinds
from refold.tools.added import Installed
from refold.tools.catalog import CATALOG


def playbook_schema() -> dict[str, Any]:
    return dict(schema(Installed(CATALOG), kinds()))
