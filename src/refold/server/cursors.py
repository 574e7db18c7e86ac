"""Cursors of lists: opaque, signed, and bound to what they list. They survive a restart, and fit no other list."""

import base64
import hashlib
import hmac
from binascii import Error

from refold.server.problems import HttpProblem, invalid

SIGNATURE = 16  # bytes


class Cursors:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def written(self, place: str, scope: str) -> str:
        return base64.urlsafe_b64encode(self._sign(place, scope) + place.encode()).decode().rstrip("=")

    def read(self, text: str, scope: str) -> str:
        """Return the place that a cursor stands for. Raises HttpProblem: of another list, or not written here."""
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            signature, place = data[:SIGNATURE], data[SIGNATURE:].decode()
        except (Error, ValueError):
            raise _foreign() from None
        if not hmac.compare_digest(signature, self._sign(place, scope)):
            raise _foreign()
        return place

    def _sign(self, place: str, scope: str) -> bytes:
        return hmac.new(self._key, f"{len(scope)}:{scope}:{place}".encode(), hashlib.sha256).digest()[:SIGNATURE]


def _foreign() -> HttpProblem:
    return invalid("?cursor", "this is not a cursor of this list with this filter", "start without a cursor")
