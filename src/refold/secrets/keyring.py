"""Secrets in the keyring of the system, under the name `refold`."""

import asyncio

from refold.errors import Unusable

try:
    import keyring
    from keyring.errors import KeyringError
except ImportError:
    raise Unusable("the system's keyring needs one more package: pip install 'refold[keyring]'") from None

SERVICE = "refold"


class Keyring:
    def about(self, name: str) -> str:
        return f"the system's keyring (entry {name!r} of {SERVICE!r})"

    async def find(self, name: str) -> str | None:
        """The keyring may ask the user for permission, so a thread waits for it."""
        try:
            return await asyncio.to_thread(keyring.get_password, SERVICE, name)
        except KeyringError as error:
            raise Unusable(f"the system's keyring does not answer: {type(error).__name__}") from None

    def names(self) -> None:
        return None
