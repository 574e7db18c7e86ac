"""Providers: the places that secrets come from, which are asked one after the other."""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from refold.errors import NotFound, Unusable
from refold.secrets.names import LARGEST, NAME, PREFIX, checked_name, parse_secret, variable

MOUNTED = Path("/run/secrets")  # a container runtime puts files here that everyone in the container may read


class Provider(Protocol):
    def about(self, name: str) -> str:
        """Where it looks for this secret, in words."""

    async def find(self, name: str) -> str | None: ...

    def names(self) -> Collection[str] | None:
        """None: it cannot list its secrets."""


class Environment:
    """Secrets in variables of the environment: `REFOLD_SECRET_<NAME>`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __repr__(self) -> str:
        return "Environment(***)"

    def about(self, name: str) -> str:
        return f"the environment ({variable(name)})"

    async def find(self, name: str) -> str | None:
        return self._variables.get(variable(name))

    def names(self) -> Collection[str]:
        return [name.removeprefix(PREFIX).lower() for name in self._variables if name.startswith(PREFIX)]


class Folder:
    """Secrets as files, one for each, as container runtimes mount them: `/run/secrets/<name>`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def about(self, name: str) -> str:
        return f"the folder {self.path}"

    async def find(self, name: str) -> str | None:
        return self.text(name)

    def text(self, name: str) -> str | None:
        """The text without one line end at its end; None if there is no such file. Raise Unusable if other users of the
        machine can read or change it."""
        if not NAME.fullmatch(name):
            return None
        file = self.path / name
        try:
            inside = file.resolve().is_relative_to(self.path.resolve())
            with open(file, "rb") as opened:
                _check_access(file, os.fstat(opened.fileno()), inside)
                data = opened.read(4 * LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise Unusable(f"the secret in {file} cannot be read: {error.strerror}") from None
        return _decoded(data, str(file))

    def names(self) -> Collection[str]:
        try:
            with os.scandir(self.path) as files:
                return [file.name for file in files if NAME.fullmatch(file.name) and file.is_file()]
        except FileNotFoundError:
            return []
        except OSError as error:
            from refold.logs import WARNING, event, logger  # imported only where there is something to log

            why = error.strerror or type(error).__name__
            event(logger("secrets"), WARNING, "the folder of secrets cannot be read", folder=str(self.path), why=why)
            return []


def _decoded(data: bytes, where: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Unusable(f"the secret in {where} is not UTF-8 text; store other data as base64") from None
    return text.removesuffix("\n").removesuffix("\r")


def _check_access(file: Path, status: os.stat_result, inside: bool) -> None:
    if not inside:
        raise Unusable(f"{file} leads out of its folder")
    if os.name == "nt":
        return
    too_open = stat.S_IWGRP | stat.S_IWOTH | (0 if file.parent == MOUNTED else stat.S_IROTH)
    if status.st_mode & too_open:
        mode = stat.S_IMODE(status.st_mode)
        raise Unusable(f"{file} has mode {mode:04o}: others may read or change it; `chmod 600 {file}` helps")


class SecretNames(Collection[str]):
    """Names of secrets; two names with the same variable in the environment are equal."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = sorted(set(names))
        self._variables = {variable(name) for name in names}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and variable(name) in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Providers:
    """Reads a secret from the first provider that has it; `remember` receives every value before it is returned."""

    def __init__(self, providers: Sequence[Provider], remember: Callable[[Any], object]) -> None:
        self._providers, self._remember = providers, remember

    async def read(self, name: str) -> Any:
        checked_name(name)
        for provider in self._providers:
            text = await provider.find(name)
            if text is None:
                continue
            if len(text) > LARGEST:
                raise Unusable(f"the secret {name!r} from {provider.about(name)} has more than {LARGEST} characters")
            value = parse_secret(text)
            self._remember(value)
            return value
        asked = "; ".join(provider.about(name) for provider in self._providers) or "no provider"
        raise NotFound(f"there is no secret {name!r}; asked were: {asked}. `refold secret set {name}` stores it")

    def names(self) -> Collection[str] | None:
        all_names: set[str] = set()
        for provider in self._providers:
            names = provider.names()
            if names is None:
                return None
            all_names.update(names)
        return SecretNames(all_names)
