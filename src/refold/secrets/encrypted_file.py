"""Secrets in an encrypted file. The keys are stored elsewhere; each secret names the key that it is sealed with."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import Corrupt, NotFound, Unusable
from refold.secrets import encryption, private_files
from refold.secrets.encryption import EncryptionKeys
from refold.secrets.names import LARGEST, checked_name

FORMAT = 1


class Sealed(Struct, frozen=True):
    """One secret; `at` is when it was set, in microseconds since 1970."""

    key: str
    at: int
    data: str


class Content(Struct, frozen=True):
    format: int = FORMAT
    secrets: dict[str, Sealed] = {}


class EncryptedFile:
    def __init__(self, path: str | os.PathLike[str], keys: EncryptionKeys) -> None:
        self.path, self.keys = Path(path), keys

    def about(self, name: str) -> str:
        return f"the encrypted file {self.path}"

    async def find(self, name: str) -> str | None:
        return self.text(name)

    def text(self, name: str) -> str | None:
        sealed = self._read().get(name)
        return None if sealed is None else self._open(name, sealed)

    def names(self) -> Collection[str]:
        return list(self._read())

    def listed(self) -> Mapping[str, Sealed]:
        """The sealed secrets by name, sorted; nothing is opened."""
        return dict(sorted(self._read().items()))

    def set(self, name: str, text: str, at: int) -> bool:
        """Return False if it replaces a secret of that name."""
        checked_name(name)
        if len(text) > LARGEST:
            raise Unusable(f"a secret has at most {LARGEST} characters")
        with private_files.locked(self.path):
            content = self._read()
            for id in {sealed.key for sealed in content.values()}:
                self.keys.key(id)  # raises for a lost key: adding a new key would hide that it is lost
            is_new = name not in content
            self._write({**content, name: self._seal(name, text, at)})
        return is_new

    def remove(self, name: str) -> None:
        with private_files.locked(self.path):
            content = self._read()
            if name not in content:
                raise NotFound(f"there is no secret {name!r} in {self.path}; `refold secret list` shows them")
            del content[name]
            self._write(content)

    def rotate(self) -> int:
        """Seal every secret again with the current key, all or none; return how many there are."""
        with private_files.locked(self.path):
            content = self._read()
            opened = {name: (self._open(name, sealed), sealed.at) for name, sealed in content.items()}
            if opened:
                self._write({name: self._seal(name, text, at) for name, (text, at) in opened.items()})
        return len(content)

    def _seal(self, name: str, text: str, at: int) -> Sealed:
        id, key = self.keys.current()
        return Sealed(id, at, encryption.seal(key, text.encode(), _context(name, at)))

    def _open(self, name: str, sealed: Sealed) -> str:
        try:
            key = self.keys.key(sealed.key)
            return encryption.unseal(key, sealed.data, _context(name, sealed.at)).decode()
        except NotFound as error:
            raise Unusable(f"the secret {name!r} in {self.path} cannot be opened: {error}") from None
        except Corrupt as error:
            raise Corrupt(f"the secret {name!r} in {self.path} cannot be opened: {error}") from None

    def _read(self) -> dict[str, Sealed]:
        data = private_files.read(self.path)
        if data is None:
            return {}
        try:
            content = msgspec.json.decode(data, type=Content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"{self.path} is not a file of secrets, or it is damaged: {error}") from None
        if content.format != FORMAT:
            raise Unusable(f"{self.path} was written by a newer Refold (format {content.format})")
        return content.secrets

    def _write(self, secrets: dict[str, Sealed]) -> None:
        private_files.write(self.path, msgspec.json.format(msgspec.json.encode(Content(FORMAT, secrets)), indent=1))


def _context(name: str, at: int) -> bytes:
    """What a secret is bound to, so that it cannot be moved to another name or be made to look newer."""
    return f"refold secret {FORMAT}\0{name}\0{at}".encode()
