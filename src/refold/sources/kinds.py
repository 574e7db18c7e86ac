"""The kinds of sources that a loop can name: those that come with Refold, and those that packages add."""

from collections.abc import Mapping

from refold.sources.added import Installed
from refold.sources.catalog import CATALOG
from refold.tool_api import ToolInfo


def kinds() -> Mapping[str, ToolInfo]:
    return Installed(CATALOG)
