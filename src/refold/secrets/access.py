"""Access to the secrets of one process; each part is imported when it is first needed."""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from refold.ports import Clock, Programs
from refold.secrets.hidden import Hidden
from refold.secrets.redaction import RedactedPrograms, SecretRedaction

if TYPE_CHECKING:
    from refold.secrets.encrypted_file import EncryptedFile
    from refold.secrets.encryption import EncryptionKeys
    from refold.secrets.entry_cache import EntryCache
    from refold.secrets.keychain import EntryOwner, Keychain, Render
    from refold.secrets.keychain_kinds import Request
    from refold.secrets.providers import Provider
    from refold.secrets.redactor import Redactor
    from refold.secrets.sealer import Sealer


class SecretPlaces(Struct, frozen=True, kw_only=True):
    """Where secrets are looked for, besides the environment. Empty: nowhere; for the keys, at their default path."""

    folder: str = "/run/secrets"
    file: str = ""  # encrypted
    key_file: str = ""
    keyring: bool = False


def file_beside(db: str | os.PathLike[str]) -> str:
    return f"{os.fspath(db)}-secrets"


class SecretAccess:
    """Implements the port `Secrets`. Most processes use no secret, so creating this imports nothing."""

    def __init__(self, variables: Mapping[str, str], where: SecretPlaces, clock: Clock) -> None:
        self._variables, self._where, self._clock = Hidden(variables), where, clock
        self.redaction = SecretRedaction()

    async def read(self, name: str) -> Any:
        from refold.secrets.providers import Providers

        return await Providers(self.providers(), self.redactor.remember).read(name)

    def names(self) -> Collection[str] | None:
        from refold.secrets.providers import Providers

        return Providers(self.providers(), lambda value: None).names()

    def providers(self) -> "list[Provider]":
        """The providers in the order in which they are asked; the encrypted file is one of them once it exists."""
        from refold.secrets.providers import Environment, Folder

        providers: list[Provider] = [Environment(self._variables.open())]
        if self._where.folder:
            providers.append(Folder(self._where.folder))
        if self._where.file and os.path.exists(self._where.file):
            providers.append(self.file)
        if self._where.keyring:
            from refold.secrets.keyring import Keyring

            providers.append(Keyring())
        return providers

    def keychain(
        self,
        entries: Sequence[Mapping[str, Any]],
        place: "EntryOwner",
        render: "Render",
        names: Mapping[str, Any],
        request: "Request",
    ) -> "Keychain":
        """The keychain of one run. Fetched entries are cached here; entries with a wider scope serve other runs too."""
        from refold.secrets.keychain import Keychain
        from refold.secrets.keychain_kinds import Sources
        from refold.secrets.providers import Folder

        folder = Folder(self._where.folder)
        sources = Sources(self, self.redactor.remember, self._variables.open(), folder, request)
        return Keychain(entries, place, sources, self.entry_cache, render, names)

    def guarded(self, programs: Programs) -> Programs:
        """The same programs, but none is started with a secret among its arguments."""
        return RedactedPrograms(programs, self.redaction)

    @property
    def redactor(self) -> "Redactor":
        return self.redaction.start()

    @cached_property
    def entry_cache(self) -> "EntryCache":
        from refold.secrets.entry_cache import EntryCache

        return EntryCache(self._clock)

    @cached_property
    def keys(self) -> "EncryptionKeys":
        from refold.secrets.encryption import EncryptionKeys

        return EncryptionKeys(self._where.key_file, self._variables.open().get("REFOLD_KEY", ""))

    @cached_property
    def sealer(self) -> "Sealer":
        from refold.secrets.sealer import Sealer

        return Sealer(self.keys, self.redactor.remember_result)

    @cached_property
    def file(self) -> "EncryptedFile":
        from refold.secrets.encrypted_file import EncryptedFile

        return EncryptedFile(self._where.file, self.keys)
