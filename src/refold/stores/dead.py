"""Dead letters of the store in memory."""

from collections.abc import Sequence

from refold.core.read.dead_letters import DeadLetter


class MemoryDead:
    """Dead letters by their run."""

    def __init__(self) -> None:
        self.dead: dict[str, tuple[DeadLetter, ...]] = {}

    def dead_letters(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        last = sorted(self.dead.items(), key=lambda each: (-each[1][0].at, each[0]))
        return [each for _, letters in last for each in letters if fingerprint in (None, each.fingerprint)][:limit]
