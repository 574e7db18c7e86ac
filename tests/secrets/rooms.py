"""Parts that the tests of secrets share: a room with keys of its own, and a clock that is moved by hand."""

from pathlib import Path
from typing import Any

from refold.errors import NotFound
from refold.secrets.access import SecretAccess, SecretPlaces

CANARY = "c4nary/Zq+7 w'x\"é&yellow"  # has a different spelling everywhere
SECOND = 1_000_000


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.at = 1_000 * SECOND

    def now(self) -> int:
        return self.at

    def go(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)

    async def sleep(self, seconds: float) -> None:
        self.go(seconds)


class Stored:
    """Secrets that are there from the beginning, and how often they were read."""

    def __init__(self, **secrets: Any) -> None:
        self.secrets, self.reads = secrets, list[str]()

    async def read(self, name: str) -> Any:
        self.reads.append(name)
        if name not in self.secrets:
            raise NotFound(f"there is no secret {name!r}")
        return self.secrets[name]

    def names(self) -> list[str]:
        return list(self.secrets)


def room(folder: Path, **variables: str) -> SecretAccess:
    where = SecretPlaces(
        folder=str(folder / "mounted"), file=str(folder / "db-secrets"), key_file=str(folder / "own" / "keys")
    )
    return SecretAccess(variables, where, Hand())
