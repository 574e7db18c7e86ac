"""Encryption of secrets: AES-256-GCM, and the keys, which are in a file of their owner or in the environment."""

import binascii
import hashlib
import os
from base64 import b64decode, b64encode
from pathlib import Path

from refold.errors import Corrupt, NotFound, Unusable
from refold.secrets import private_files
from refold.secrets.hidden import Hidden

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from platformdirs import user_config_path
except ImportError:
    raise Unusable("encryption needs one more package: pip install 'refold[secrets]'") from None

NONCE_SIZE = 12
TAG_SIZE = 16
KEY_SIZE = 32
HEAD = "# Keys of Refold, the current one first. Who has them can read its secrets; without them nobody can.\n"


def seal(key: bytes, data: bytes, context: bytes) -> str:
    """The encrypted data in base64. It can only be opened with the same context: what the data belongs to."""
    nonce = os.urandom(NONCE_SIZE)
    return b64encode(nonce + AESGCM(key).encrypt(nonce, data, context)).decode()


def unseal(key: bytes, text: str, context: bytes) -> bytes:
    """Raise Corrupt if one letter of the text or of the context is not what it was."""
    try:
        sealed = b64decode(text, validate=True)
    except ValueError:
        sealed = b""
    if len(sealed) < NONCE_SIZE + TAG_SIZE or b64encode(sealed).decode() != text:
        raise Corrupt("it was changed after it was sealed")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], context)
    except InvalidTag:
        raise Corrupt("it was changed, or moved to another place, after it was sealed") from None


def default_key_path() -> Path:
    return user_config_path("refold", appauthor=False) / "keys"


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"refold key\0" + key).hexdigest()[:12]


class EncryptionKeys:
    """The keys from `given` (one or several in base64, the current one first), or else from a file.

    An old key is kept when a new one is added, because values that it has sealed still exist.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, given: str = "") -> None:
        self.path = Path(path) if path else default_key_path()
        self._given = Hidden(given)

    def about(self) -> str:
        return "REFOLD_KEY" if self._given.open() else f"the file {self.path}"

    def current(self) -> tuple[str, bytes]:
        """The key to seal with, after its id; the first key is made when it is first needed."""
        keys = self._all() or self._made()
        return next(iter(keys.items()))

    def key(self, id: str) -> bytes:
        """Raise NotFound if there is no such key."""
        keys = self._all()
        if id not in keys:
            ids = ", ".join(keys) or "none"
            raise NotFound(f"this was sealed with the key {id}, which is not in {self.about()} ({ids} is there)")
        return keys[id]

    def ids(self) -> list[str]:
        return list(self._all())

    def add(self) -> str:
        """Make a new key the current one, and return its id. Raise Unusable if the keys are in REFOLD_KEY."""
        if self._given.open():
            why = "REFOLD_KEY is set: put a new key before the old one there, with a space between them"
            raise Unusable(f"{why}; `head -c 32 /dev/urandom | base64` makes one")
        with private_files.locked(self.path):
            key = os.urandom(KEY_SIZE)
            private_files.write(self.path, _file_of_keys([key, *self._all().values()]))
        return key_id(key)

    def keep_only(self, id: str) -> None:
        """Remove all other keys; what they have sealed cannot be opened any more."""
        with private_files.locked(self.path):
            private_files.write(self.path, _file_of_keys([self.key(id)]))

    def is_given(self) -> bool:
        return bool(self._given.open())

    def _all(self) -> dict[str, bytes]:
        if self._given.open():
            return _parse_keys(self._given.open(), "REFOLD_KEY")
        data = private_files.read(self.path)
        return {} if data is None else _parse_keys(data.decode(errors="replace"), str(self.path))

    def _made(self) -> dict[str, bytes]:
        private_files.make(self.path, _file_of_keys([os.urandom(KEY_SIZE)]))  # or another process has made one
        return self._all()


def _file_of_keys(keys: list[bytes]) -> bytes:
    return (HEAD + "".join(f"{b64encode(key).decode()}\n" for key in keys)).encode()


def _parse_keys(text: str, where: str) -> dict[str, bytes]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    words = " ".join(lines).replace(",", " ").split()
    try:
        keys = [b64decode(word, validate=True) for word in words]
    except (binascii.Error, ValueError):
        keys = []
    if not keys or any(len(key) != KEY_SIZE for key in keys):
        what = f"keys of {KEY_SIZE} bytes in base64, separated by spaces or on lines of their own"
        raise Unusable(f"{where} must contain {what}")
    return {key_id(key): key for key in keys}
