"""Sources that other packages add, by the entry points of the group `refold.sources`."""

from collections.abc import Collection, Mapping

from refold import entry_points
from refold.descriptions import ToolInfo

GROUP = "refold.sources"


class Added(entry_points.Added):
    def __init__(self, own: Collection[str]) -> None:
        super().__init__(GROUP, own)


class Installed(entry_points.Installed):
    """The catalog of sources, with the kinds that packages add."""

    def __init__(self, own: Mapping[str, ToolInfo]) -> None:
        super().__init__(own, Added(own))
