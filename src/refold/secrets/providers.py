"""The places that secrets come from, asked one after the other."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from refold.errors import NotFound, Unusable
from refold.secrets.names import LARGEST, checked, meaning, variable


class Provider(Protocol):
    def about(self, name: str) -> str:
        """Where it looks for this secret, in words."""

    async def find(self, name: str) -> str | None: ...

    def names(self) -> Collection[str] | None:
        """None: it cannot tell."""


class Known(Collection[str]):
    """Names of secrets; one that differs only as variables of the environment do is the same."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = sorted(set(names))
        self._spelt = {variable(name) for name in names}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and variable(name) in self._spelt

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Providers:
    """`remember` is told every value before it is handed out."""

    def __init__(self, providers: Sequence[Provider], remember: Callable[[Any], object]) -> None:
        self._providers, self._remember = providers, remember

    async def read(self, name: str) -> Any:
        checked(name)
        for provider in self._providers:
            text = await provider.find(name)
            if text is None:
                continue
            if len(text) > LARGEST:
                raise Unusable(f"the secret {name!r} from {provider.about(name)} has more than {LARGEST} characters")
            value = meaning(text)
            self._remember(value)
            return value
        asked = "; ".join(provider.about(name) for provider in self._providers) or "nobody"
        raise NotFound(f"there is no secret {name!r}; asked were: {asked}. `refold secret set {name}` stores it")

    def names(self) -> Collection[str] | None:
        found: set[str] = set()
        for provider in self._providers:
            names = provider.names()
            if names is None:
                return None
            found.update(names)
        return Known(found)
