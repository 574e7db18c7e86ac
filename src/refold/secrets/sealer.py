"""Sealed values: they are encrypted in the log, and opened only for the call that uses them."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from refold.core.pipeline import digest
from refold.errors import Corrupt, NotFound, Unusable
from refold.secrets.encryption import EncryptionKeys, seal, unseal

MARK = "$sealed"


class Sealer:
    """`remember` receives every value before it is returned, so that it stays out of logs, errors and results."""

    def __init__(self, keys: EncryptionKeys, remember: Callable[[Any], object]) -> None:
        self._keys, self._remember = keys, remember

    def seal(self, value: Any, run: str) -> dict[str, str]:
        """Return `{"$sealed": "<key id>.<base64>"}`, which can be opened for this run only."""
        id, key = self._keys.current()
        return {MARK: f"{id}.{seal(key, msgspec.json.encode(value), _context(run))}"}

    def open(self, sealed: dict[str, str], run: str) -> Any:
        id, _, data = sealed[MARK].partition(".")
        try:
            text = unseal(self._keys.key(id), data, _context(run))
        except NotFound as error:
            raise Unusable(f"a sealed value of run {run} cannot be opened: {error}") from None
        except Corrupt as error:
            raise Corrupt(f"a sealed value of run {run} cannot be opened: {error}") from None
        value = msgspec.json.decode(text)
        self._remember(value)
        return value

    def open_all(self, value: Any, run: str, known: Collection[str] | None = None) -> Any:
        """Return the value with everything opened that is sealed in it; the same object if nothing is.

        `known` are the digests of what was sealed: everything else that looks sealed is data. None: open everything
        that looks sealed.
        """
        if is_sealed(value):
            return self.open(value, run) if known is None or digest(value) in known else value
        if isinstance(value, dict):
            opened = {name: self.open_all(field, run, known) for name, field in value.items()}
            return opened if any(opened[name] is not field for name, field in value.items()) else value
        if isinstance(value, list):
            items = [self.open_all(item, run, known) for item in value]
            return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
        return value


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {MARK} and isinstance(value[MARK], str)


def _context(run: str) -> bytes:
    return f"refold output\0{run}".encode()
