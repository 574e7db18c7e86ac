"""Whose turn it is among the shares of a queue and priority: they go round by name, each with as many commands as its
weight."""

from collections.abc import Iterator, Mapping

Group = tuple[str, int]
"""Queue and priority."""

Position = tuple[str, int]
"""The share that was served last, and how many commands of its weight are left."""


class Rounds:
    """Where a claimer is in its rounds. Each claimer has its own place: what is fair for each is fair for all."""

    def __init__(self, positions: Mapping[Group, Position] | None = None) -> None:
        self.positions: dict[Group, Position] = dict(positions or {})

    def first(self, group: Group) -> tuple[str, bool]:
        """Return the share from which the round continues, and whether its own turn is not over."""
        share, left = self.positions.get(group, ("", 1))
        return share, left > 0

    def served(self, group: Group, share: str, weight: int) -> None:
        """Take note of one command."""
        last, left = self.positions.get(group, ("", 0))
        self.positions[group] = share, (left if last == share and left > 0 else weight) - 1

    def in_turn(self, group: Group, shares: list[str]) -> Iterator[str]:
        """Yield sorted shares in the order of the round."""
        share, is_current = self.first(group)
        yield from (each for each in shares if each > share or (is_current and each == share))
        yield from (each for each in shares if each < share or (not is_current and each == share))
