"""The places of a worker for bodies that need an executor of their own, so that it claims only what it can start.

A slot is room for any command; a place is what a command of one kind of executor needs besides. A place is taken from
the claim of its command to the end of its body. While a worker asks for a command, it reserves the places that the
answer may need.
"""

from collections.abc import Mapping

from refold.core.executors import REMOTE


class Places:
    """`limits` says how many places there are, by kind of executor. Other kinds need none."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = dict(limits)
        self.free = dict(limits)
        self._wanted = False  # whether a command may have been passed over because there was no place

    def reserve(self, most: int, own: str = "") -> tuple[tuple[str, int], ...]:
        """Reserve up to `most` places of each kind, and return how many there are. `own` is a kind of which the caller
        has a place already, which counts."""
        if not self.limits:
            return ()
        reserved: list[tuple[str, int]] = []
        for kind, free in self.free.items():
            held = 1 if kind == own else 0
            taken = max(min(free, most - held), 0)
            self.free[kind] = free - taken
            reserved.append((kind, taken + held))
        self._wanted = self._wanted or any(not count for _, count in reserved)
        return tuple(reserved)

    def has_remote(self) -> bool:
        """Whether there is a place for a body that runs on other machines."""
        return any(self.free.get(kind, 0) > 0 for kind in REMOTE)

    def reserve_remote(self, most: int, own: str = "") -> tuple[tuple[str, int], ...]:
        """Like `reserve`, where no slot of this machine is free: there is no place for any body that needs one."""
        self._wanted = True
        found: list[tuple[str, int]] = [("", 0)]
        for kind, free in self.free.items():
            held = 1 if kind == own else 0
            taken = max(min(free, most - held), 0) if kind in REMOTE else 0
            self.free[kind] = free - taken
            found.append((kind, taken + held))
        return tuple(found)

    def held(self, kind: str) -> tuple[tuple[str, int], ...]:
        """Return the place that a command of this kind has, in the form in which it is given back."""
        return ((kind, 1),) if kind in self.limits else ()

    def release(self, reserved: tuple[tuple[str, int], ...], *used: str) -> bool:
        """Give back what was reserved, except the places that commands of these kinds use. Return True if a command
        that was passed over may be claimed now."""
        freed = False
        for kind, count in reserved:
            if kind not in self.limits:
                continue
            back = count - used.count(kind)
            self.free[kind] += back
            freed = freed or back > 0
        wanted, self._wanted = self._wanted, self._wanted and not freed
        return freed and wanted
