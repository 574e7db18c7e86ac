"""The kinds of entries in a keychain: how each gets its fields."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core import times
from refold.errors import InvalidValue, NotFound
from refold.ports import Secrets
from refold.secrets.names import KEY
from refold.secrets.providers import Folder

CLOUDS = ("gcp", "google", "aws", "azure", "vault", "k8s", "kubernetes")
HERE = ("env", "environment", "file")

Request = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Sends `{method, url, headers, data}` and returns the decoded body; raises if there is no good answer."""


async def _no_requests(request: Mapping[str, Any]) -> Any:
    raise NotFound("there is no HTTP client here that could send requests")


class Sources(Struct, frozen=True):
    """Where entries get their fields from; `remember` receives every field before it is returned."""

    secrets: Secrets
    remember: Callable[[Any], object]
    variables: Mapping[str, str] = {}
    folder: Folder = Folder("/run/secrets")
    request: Request = _no_requests

    def __repr__(self) -> str:
        return "Sources(***)"


class EntryFields(Struct, frozen=True):
    fields: Mapping[str, Any]
    good_for: float = math.inf

    def __repr__(self) -> str:
        return "Found(***)"


Keys = Mapping[str, Any]


async def _static(keys: Keys, sources: Sources) -> EntryFields:
    return EntryFields(dict(_map(keys)))


async def _bearer(keys: Keys, sources: Sources) -> EntryFields:
    token = keys.get("token")
    if isinstance(token, Mapping):
        token = token.get("token", token.get("value"))
    if not isinstance(token, str) or not token:
        raise InvalidValue("token", "a bearer entry needs one, as text")
    return EntryFields({"token": token, "access_token": token, "token_type": keys.get("token_type", "Bearer")})


async def _credential(keys: Keys, sources: Sources) -> EntryFields:
    """A stored secret: its fields, or its text as the field `value`; `map` renames fields."""
    name = keys.get("credential") or keys.get("ref") or keys.get("auth")
    if not isinstance(name, str):
        raise InvalidValue("credential", "must name a secret (or `ref` must)")
    stored = await sources.secrets.read(name)
    fields = _fields(stored)
    wanted = keys.get("map")
    if wanted is None:
        return EntryFields(fields)
    missing = sorted({str(field) for field in _map(keys).values()} - fields.keys())
    if missing:
        raise NotFound(f"the secret {name!r} has no field {', '.join(missing)}; it has {', '.join(fields)}")
    return EntryFields({field: fields[source] for field, source in wanted.items()})


def _fields(stored: Any) -> dict[str, Any]:
    """NoETL's stored credentials have their fields in `data`, below a `type`."""
    if not isinstance(stored, Mapping):
        return {"value": stored, "token": stored, "password": stored}
    inner = stored.get("data")
    return dict(inner) if isinstance(inner, Mapping) and stored.keys() <= {"name", "type", "data"} else dict(stored)


async def _oauth2(keys: Keys, sources: Sources) -> EntryFields:
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
    return EntryFields({**answer, "token": token}, float(str(good_for)) if known else math.inf)


def _host(address: str) -> str:
    return re.sub(r"^(\w+://)?([^/@]*@)?([^/?#]*).*$", r"\3", address, flags=re.S)


async def _env(keys: Keys, sources: Sources) -> EntryFields:
    fields = {}
    for field, variable in _map(keys).items():
        if not isinstance(variable, str) or variable == KEY:
            raise InvalidValue(f"map.{field}", "must name a variable of the environment that entries may read")
        if variable not in sources.variables:
            raise NotFound(f"`map.{field}`: the environment has no variable {variable}")
        fields[field] = sources.variables[variable]
    return EntryFields(fields)


async def _file(keys: Keys, sources: Sources) -> EntryFields:
    """Files of a folder: the folder of secrets, or the one that `folder` names."""
    folder = sources.folder if keys.get("folder") is None else Folder(str(keys["folder"]))
    fields = {}
    for field, name in _map(keys).items():
        text = folder.text(name) if isinstance(name, str) else None
        if text is None:
            raise NotFound(f"`map.{field}`: there is no file {name!r} in {folder.path}")
        fields[field] = text
    return EntryFields(fields)


async def _managed(keys: Keys, sources: Sources) -> EntryFields:
    provider = keys.get("provider")
    if provider in ("env", "environment"):
        return await _env(keys, sources)
    if provider == "file":
        return await _file(keys, sources)
    if provider is not None:
        here = f"not available: secrets of {provider} need a cloud's own client, and there is none here"
        raise NotFound(f"{here}; `provider` may be env or file, or be left out to read secrets by their names")
    return EntryFields({field: await sources.secrets.read(str(name)) for field, name in _map(keys).items()})


def _map(keys: Keys) -> Mapping[str, Any]:
    fields = keys.get("map")
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidValue("map", "must be a map of at least one field")
    return fields


KINDS: Mapping[str, Callable[[Keys, Sources], Awaitable[EntryFields]]] = {
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
    """The keys that decide what is read on this machine; they may not come from the input of a run."""
    here = kind in ("env", "file") or keys.get("provider") in HERE
    return [name for name in ("map", "folder", "provider") if name in keys and (here or name == "provider")]


def unknown_kind(kind: str) -> str:
    """Explain why there is no such kind."""
    if kind.startswith("google") or any(cloud in kind for cloud in CLOUDS):
        return f"not available: entries of kind {kind!r} need a cloud's own client, and there is none here"
    return f"there is no kind {kind!r} (there are {', '.join(KINDS)})"


def seconds(value: Any, otherwise: float | None) -> float:
    if value is None:
        return math.inf if otherwise is None else otherwise
    try:
        return times.seconds(value)
    except InvalidValue:
        raise InvalidValue("ttl", "must be a number of seconds or a duration such as 30m") from None
