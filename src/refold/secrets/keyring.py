"""Secrets in the keyring of the system, under the name `refold`."""

import asyncio

from refold.errors import Unusable

try:
    import keyring
    from keyring.errors import KeyringError
except ImportError:
    raise Unusable("the system's keyring needs one package more: pip install 'refold[keyring]'") from None

OURS = "refold"


class Ring:
    def about(self, name: str) -> str:
        return f"the system's keyring (entry {name!r} of {OURS!r})"

    async def find(self, name: str) -> str | None:
        """It may ask its owner for leave, so a thread waits for it."""
        try:
            return await asyncio.to_thread(keyring.get_password, OURS, name)
        except KeyringError as error:
            raise Unusable(f"the system's keyring does not answer: {type(error).__name__}") from None

    def names(self) -> None:
        return None
