"""The keys that seal: in a file of their owner, far from what they seal, or in the environment."""

import binascii
import hashlib
import os
from base64 import b64decode, b64encode
from pathlib import Path

from refold.errors import NotFound, Unusable
from refold.secrets import files
from refold.secrets.cipher import KEY
from refold.secrets.hidden import Hidden

try:
    from platformdirs import user_config_path
except ImportError:
    raise Unusable("encryption needs one package more: pip install 'refold[secrets]'") from None

HEAD = "# Keys of Refold, the present one first. Who has them can read its secrets; without them nobody can.\n"


def default_path() -> Path:
    return user_config_path("refold", appauthor=False) / "keys"


def id_of(key: bytes) -> str:
    return hashlib.sha256(b"refold key\0" + key).hexdigest()[:12]


class Keys:
    """Where keys come from: `given`, one or several in base64, the present one first, or else a file.

    Keys are kept when others take their place, because what they have sealed is still there.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, given: str = "") -> None:
        self.path = Path(path) if path else default_path()
        self._given = Hidden(given)

    def about(self) -> str:
        return "REFOLD_KEY" if self._given.open() else f"the file {self.path}"

    def current(self) -> tuple[str, bytes]:
        """The id of the key to seal with, and the key; the first is made when it is first needed."""
        found = self._all() or self._made()
        return next(iter(found.items()))

    def key(self, id: str) -> bytes:
        """Raises NotFound."""
        found = self._all()
        if id not in found:
            known = ", ".join(found) or "none"
            raise NotFound(f"this was sealed with the key {id}, which is not in {self.about()} ({known} is there)")
        return found[id]

    def ids(self) -> list[str]:
        return list(self._all())

    def add(self) -> str:
        """A new key takes the first place. Raises Unusable if the keys are given from outside."""
        if self._given.open():
            why = "REFOLD_KEY is set: put a new key before the old one there, with a space between them"
            raise Unusable(f"{why}; `head -c 32 /dev/urandom | base64` makes one")
        with files.locked(self.path):
            key = os.urandom(KEY)
            files.write(self.path, _text([key, *self._all().values()]))
        return id_of(key)

    def keep_only(self, id: str) -> None:
        """Forget all others: what they have sealed is lost."""
        with files.locked(self.path):
            files.write(self.path, _text([self.key(id)]))

    def is_given(self) -> bool:
        return bool(self._given.open())

    def _all(self) -> dict[str, bytes]:
        if self._given.open():
            return _keys(self._given.open(), "REFOLD_KEY")
        data = files.read(self.path)
        return {} if data is None else _keys(data.decode(errors="replace"), str(self.path))

    def _made(self) -> dict[str, bytes]:
        files.make(self.path, _text([os.urandom(KEY)]))  # or somebody else has
        return self._all()


def _text(keys: list[bytes]) -> bytes:
    return (HEAD + "".join(f"{b64encode(key).decode()}\n" for key in keys)).encode()


def _keys(text: str, where: str) -> dict[str, bytes]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    words = " ".join(lines).replace(",", " ").split()
    try:
        keys = [b64decode(word, validate=True) for word in words]
    except (binascii.Error, ValueError):
        keys = []
    if not keys or any(len(key) != KEY for key in keys):
        raise Unusable(f"{where} must hold keys of {KEY} bytes in base64, separated by spaces or on lines of their own")
    return {id_of(key): key for key in keys}
