"""Tools that other packages add, by the entry points of the group `refold.tools`."""

from collections.abc import Collection, Mapping

from refold import registry
from refold.tool_api import ToolInfo

GROUP = "refold.tools"


class Added(registry.Added):
    def __init__(self, own: Collection[str]) -> None:
        super().__init__(GROUP, own)


class Installed(registry.Installed):
    """The catalog of tools, with the kinds that packages add."""

    def __init__(self, own: Mapping[str, ToolInfo]) -> None:
        super().__init__(own, Added(own))
