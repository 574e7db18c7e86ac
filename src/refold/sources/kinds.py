"""The kinds of sources that a loop can name: those that come with Refold, and those that packages add."""

from collections.abc import Mapping

from refold.descriptions import ToolInfo
from refold.sources.added import Installed
from refold.sources.catalog import CATALOG


def kinds() -> Mapping[str, ToolInfo]:
    return Installed(CATALOG)
