"""Dead letters in the file."""

from collections.abc import Sequence

from msgspec import DecodeError, json

from refold.core.dead import DeadLetter
from refold.errors import Corrupt
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import Values, check, seal

_letter = json.Decoder(DeadLetter)


def put_dead(file: File, namespace: str, run: str, letters: Sequence[DeadLetter]) -> None:
    """In the place of those that the run had."""
    file.write(queries.CLEAR_DEAD, [(namespace, run)])
    rows = [(run, n, each.fingerprint, each.at, json.encode(each)) for n, each in enumerate(letters)]
    if rows:
        file.write(queries.ADD_DEAD, [(namespace, *row, seal(row)) for row in rows])


def read_dead(row: Values) -> DeadLetter:
    *values, mark = row
    check(f"dead letter {row[1]} of run {row[0]}", tuple(values), mark)
    try:
        return _letter.decode(row[4])
    except DecodeError as error:
        raise Corrupt(f"dead letter {row[1]} of run {row[0]} is not readable: {error}") from None


class SqliteDead:
    """Finds them."""

    file: File
    namespace: str

    def dead_letters(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        query, found_by = (queries.DEAD, ()) if fingerprint is None else (queries.DEAD_ALIKE, (fingerprint,))
        with self.file.guard:
            return [read_dead(row) for row in self.file.rows(query, (self.namespace, *found_by, limit))]
