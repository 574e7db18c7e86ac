"""What every store checks before it changes a document."""

from refold.core.outcomes import Instant
from refold.errors import Conflict, InvalidValue
from refold.ports import MOST_DATA, Document


def check_put(kind: str, id: str, data: bytes) -> None:
    """Raises InvalidValue."""
    if not kind or not id or "\0" in kind + id:
        raise InvalidValue("document", f"kind {kind!r} and id {id!r} are texts that are not empty and have no NUL")
    if len(data) > MOST_DATA:
        raise InvalidValue(f"{kind} {id}", f"it has {len(data)} bytes, and a document may have {MOST_DATA}")


def check_version(kind: str, id: str, stored: Document | None, version: int) -> None:
    """Raises Conflict if the stored document does not have the version that the writer has seen."""
    if (stored.version if stored is not None else 0) == version:
        return
    if stored is None:
        raise Conflict(f"{kind} {id} was deleted meanwhile")
    raise Conflict(f"there is a {kind} {id}" if version == 0 else f"{kind} {id} was changed meanwhile")


def next_version(version: int, now: Instant) -> int:
    """Return the version after this one. The store's time never goes back, so that a document that is deleted and made
    again has a version that it did not have before."""
    return max(version + 1, now)
