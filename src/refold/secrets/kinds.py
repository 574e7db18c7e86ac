"""The kinds of entries in a keychain: how each comes by its fields."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core import times
from refold.errors import InvalidValue, NotFound
from refold.ports import Secrets
from refold.secrets.folder import Folder
from refold.secrets.names import KEY

CLOUDS = ("gcp", "google", "aws", "azure", "vault", "k8s", "kubernetes")
HERE = ("env", "environment", "file")

Request = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Sends `{method, url, headers, data}` and returns the decoded body; raises if the answer is none."""


async def _nobody(request: Mapping[str, Any]) -> Any:
    raise NotFound("nobody here can send requests")


class Sources(Struct, frozen=True):
    """What entries are made of; `remember` is told every field before it is handed out."""

    secrets: Secrets
    remember: Callable[[Any], object]
    variables: Mapping[str, str] = {}
    folder: Folder = Folder("/run/secrets")
    request: Request = _nobody

    def __repr__(self) -> str:
        return "Sources(***)"


class Found(Struct, frozen=True):
    fields: Mapping[str, Any]
    good_for: float = math.inf

    def __repr__(self) -> str:
        return "Found(***)"


Keys = Mapping[str, Any]


async def _static(keys: Keys, sources: Sources) -> Found:
    return Found(dict(_map(keys)))


async def _bearer(keys: Keys, sources: Sources) -> Found:
    token = keys.get("token")
    if isinstance(token, Mapping):
        token = token.get("token", token.get("value"))
    if not isinstance(token, str) or not token:
        raise InvalidValue("token", "a bearer entry needs one, as text")
    return Found({"token": token, "access_token": token, "token_type": keys.get("token_type", "Bearer")})


async def _credential(keys: Keys, sources: Sources) -> Found:
    """A stored secret: its fields, or its text as the field `value`; `map` gives fields other names."""
    name = keys.get("credential") or keys.get("ref") or keys.get("auth")
    if not isinstance(name, str):
        raise InvalidValue("credential", "must name a secret (or `ref` must)")
    stored = await sources.secrets.read(name)
    fields = _fields(stored)
    wanted = keys.get("map")
    if wanted is None:
        return Found(fields)
    missing = sorted({str(each) for each in _map(keys).values()} - fields.keys())
    if missing:
        raise NotFound(f"the secret {name!r} has no field {', '.join(missing)}; it has {', '.join(fields)}")
    return Found({field: fields[source] for field, source in wanted.items()})


def _fields(stored: Any) -> dict[str, Any]:
    """NoETL's stored credentials have their fields in `data`, below a `type`."""
    if not isinstance(stored, Mapping):
        return {"value": stored, "token": stored, "password": stored}
    inner = stored.get("data")
    return dict(inner) if isinstance(inner, Mapping) and stored.keys() <= {"name", "type", "data"} else dict(stored)


async def _oauth2(keys: Keys, sources: Sources) -> Found:
    endpoint = keys.get("endpoint") or keys.get("url")
    if not isinstance(endpoint, str):
        raise InvalidValue("endpoint", "an oauth2 entry needs the address that gives out tokens")
    request = {"method": keys.get("method", "POST"), "url": endpoint, "headers": keys.get("headers", {})}
    answer = await sources.request({**request, "data": keys.get("data", {})})
    if not isinstance(answer, Mapping) or not isinstance(answer.get("access_token"), str):
        given = ", ".join(map(str, answer)) if isinstance(answer, Mapping) else "no map"
        raise NotFound(f"the answer of {_host(endpoint)} has no `access_token`; it has {given}")
    token = answer["access_token"]
    good_for = answer.get("expires_in")
    known = isinstance(good_for, int | float | str) and re.fullmatch(r"\d+(\.\d+)?", str(good_for))
    return Found({**answer, "token": token}, float(str(good_for)) if known else math.inf)


def _host(address: str) -> str:
    return re.sub(r"^(\w+://)?([^/@]*@)?([^/?#]*).*$", r"\3", address, flags=re.S)


async def _env(keys: Keys, sources: Sources) -> Found:
    fields = {}
    for field, variable in _map(keys).items():
        if not isinstance(variable, str) or variable == KEY:
            raise InvalidValue(f"map.{field}", "must name a variable of the environment that entries may read")
        if variable not in sources.variables:
            raise NotFound(f"`map.{field}`: the environment has no variable {variable}")
        fields[field] = sources.variables[variable]
    return Found(fields)


async def _file(keys: Keys, sources: Sources) -> Found:
    """Files of a folder: the one for secrets, or the one that `folder` names."""
    folder = sources.folder if keys.get("folder") is None else Folder(str(keys["folder"]))
    fields = {}
    for field, name in _map(keys).items():
        text = folder.text(name) if isinstance(name, str) else None
        if text is None:
            raise NotFound(f"`map.{field}`: there is no file {name!r} in {folder.path}")
        fields[field] = text
    return Found(fields)


async def _managed(keys: Keys, sources: Sources) -> Found:
    provider = keys.get("provider")
    if provider in ("env", "environment"):
        return await _env(keys, sources)
    if provider == "file":
        return await _file(keys, sources)
    if provider is not None:
        here = f"not available: secrets of {provider} need a cloud's own client, and there is none here"
        raise NotFound(f"{here}; `provider` may be env or file, or be left out to read secrets by their names")
    return Found({field: await sources.secrets.read(str(name)) for field, name in _map(keys).items()})


def _map(keys: Keys) -> Mapping[str, Any]:
    found = keys.get("map")
    if not isinstance(found, Mapping) or not found:
        raise InvalidValue("map", "must be a map of at least one field")
    return found


KINDS: Mapping[str, Callable[[Keys, Sources], Awaitable[Found]]] = {
    "static": _static,
    "bearer": _bearer,
    "credential": _credential,
    "credential_ref": _credential,
    "oauth2": _oauth2,
    "env": _env,
    "file": _file,
    "secret_manager": _managed,
    "secrets": _managed,
}


def as_written(kind: str, keys: Keys) -> list[str]:
    """Keys that decide what of this machine is read: no input of a run may choose that."""
    here = kind in ("env", "file") or keys.get("provider") in HERE
    return [name for name in ("map", "folder", "provider") if name in keys and (here or name == "provider")]


def cloud(kind: str) -> str:
    """Why there is no such kind."""
    if kind.startswith("google") or any(each in kind for each in CLOUDS):
        return f"not available: entries of kind {kind!r} need a cloud's own client, and there is none here"
    return f"there is no kind {kind!r} (there are {', '.join(KINDS)})"


def seconds(value: Any, otherwise: float | None) -> float:
    if value is None:
        return math.inf if otherwise is None else otherwise
    try:
        return times.seconds(value)
    except InvalidValue:
        raise InvalidValue("ttl", "must be seconds or a span of time such as 30m") from None
