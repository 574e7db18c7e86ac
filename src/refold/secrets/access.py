"""The secrets of one process: all that belongs to them, each part loaded when it is first needed."""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from refold.ports import Clock, Programs
from refold.secrets.hidden import Hidden
from refold.secrets.redaction import Discreet, DiscreetPrograms

if TYPE_CHECKING:
    from refold.secrets.encrypted import EncryptedFile
    from refold.secrets.entry_cache import Kept
    from refold.secrets.keychain import Keychain, Place, Render
    from refold.secrets.keys import Keys
    from refold.secrets.kinds import Request
    from refold.secrets.providers import Provider
    from refold.secrets.redactor import Redactor
    from refold.secrets.sealer import Sealer


class Where(Struct, frozen=True, kw_only=True):
    """Where secrets are looked for, beside the environment; empty: nowhere, or for the keys, at their usual place."""

    folder: str = "/run/secrets"
    file: str = ""  # encrypted
    key_file: str = ""
    keyring: bool = False


def file_beside(db: str | os.PathLike[str]) -> str:
    return f"{os.fspath(db)}-secrets"


class Strongroom:
    """Is a `Secrets`. Most processes have none, so nothing is loaded with it."""

    def __init__(self, variables: Mapping[str, str], where: Where, clock: Clock) -> None:
        self._variables, self._where, self._clock = Hidden(variables), where, clock
        self.redaction = Discreet()

    async def read(self, name: str) -> Any:
        from refold.secrets.providers import Providers

        return await Providers(self.providers(), self.redactor.remember).read(name)

    def names(self) -> Collection[str] | None:
        from refold.secrets.providers import Providers

        return Providers(self.providers(), lambda value: None).names()

    def providers(self) -> "list[Provider]":
        """In the order in which they are asked; the encrypted file is one as soon as it is there."""
        from refold.secrets.environment import Environment

        found: list[Provider] = [Environment(self._variables.open())]
        if self._where.folder:
            from refold.secrets.folder import Folder

            found.append(Folder(self._where.folder))
        if self._where.file and os.path.exists(self._where.file):
            found.append(self.file)
        if self._where.keyring:
            from refold.secrets.keyring import Ring

            found.append(Ring())
        return found

    def keychain(
        self,
        entries: Sequence[Mapping[str, Any]],
        place: "Place",
        render: "Render",
        names: Mapping[str, Any],
        request: "Request",
    ) -> "Keychain":
        """Of one run; what its entries bring is kept here, for other runs too if they say so."""
        from refold.secrets.folder import Folder
        from refold.secrets.keychain import Keychain
        from refold.secrets.kinds import Sources

        folder = Folder(self._where.folder)
        sources = Sources(self, self.redactor.remember, self._variables.open(), folder, request)
        return Keychain(entries, place, sources, self.kept, render, names)

    def guarded(self, programs: Programs) -> Programs:
        """The same, and none is started with a secret among its arguments."""
        return DiscreetPrograms(programs, self.redaction)

    @cached_property
    def redactor(self) -> "Redactor":
        from refold.secrets.redactor import Redactor

        found = Redactor()
        self.redaction.redactor = found
        return found

    @cached_property
    def kept(self) -> "Kept":
        from refold.secrets.entry_cache import Kept

        return Kept(self._clock)

    @cached_property
    def keys(self) -> "Keys":
        from refold.secrets.keys import Keys

        return Keys(self._where.key_file, self._variables.open().get("REFOLD_KEY", ""))

    @cached_property
    def sealer(self) -> "Sealer":
        from refold.secrets.sealer import Sealer

        return Sealer(self.keys, self.redactor.remember_result)

    @cached_property
    def file(self) -> "EncryptedFile":
        from refold.secrets.encrypted import EncryptedFile

        return EncryptedFile(self._where.file, self.keys)
