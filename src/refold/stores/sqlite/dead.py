"""Dead letters in the file."""

from collections.abc import Sequence

from msgspec import json

from refold.core.read.dead_letters import DeadLetter
from refold.stores.sqlite import queries
from refold.stores.sqlite.columns import DEAD, Values, malformed
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import check, seal

_letter = json.Decoder(DeadLetter)


def put_dead(file: File, namespace: str, run: str, letters: Sequence[DeadLetter]) -> None:
    """In the place of those that the run had."""
    file.write(queries.CLEAR_DEAD, [(namespace, run)])
    rows = [(run, n, each.fingerprint, each.at, json.encode(each)) for n, each in enumerate(letters)]
    if rows:
        file.write(queries.ADD_DEAD, [(namespace, *row, seal(row)) for row in rows])


def read_dead(row: Values) -> DeadLetter:
    DEAD.check((row[0], row[1]), row)
    *values, mark = row
    check(f"dead letter {row[1]} of run {row[0]}", tuple(values), mark, "dead")
    letter = DEAD.decoded((row[0], row[1]), "data", _letter.decode, row[4])
    if (letter.run, letter.fingerprint, letter.at) != (row[0], row[2], row[3]):
        raise malformed("dead", (row[0], row[1]), "data", "it does not say the same as the other columns")
    return letter
