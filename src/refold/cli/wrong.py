"""Rows of a database file that a command could not read."""

from msgspec import Struct

from refold.errors import Corrupt


class WrongRows(Struct):
    """A command shows all other rows, names these when it has ended, and ends with exit code 5."""

    errors: dict[str, None] = {}

    def report(self, error: Corrupt) -> None:
        self.errors[str(error)] = None
