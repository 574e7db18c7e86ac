"""Secrets of a pipeline: fetched in the worker for the task that names them, and never part of what is stored."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.outcomes import Fault
from refold.errors import NotFound, ToolFailed
from refold.ports import Entries, Piece, Say
from refold.templates import paths_of

SCOPES = ("keychain", "secrets")
HIDDEN = "***"
ABOUT_CODE = ("file", "line", "source")  # where Python code has failed; this is part of the playbook, not of a result
SHORTEST_LINE = 4  # characters of a line of a secret result that is taken out of a message

Owner = tuple[str, str]
"""A playbook and a run of it."""

Render = Callable[[Any, Mapping[str, Any]], Any]
"""Evaluates the templates in a value, with these names besides."""


def named_in(value: Any) -> list[tuple[str, ...]]:
    """Return the paths of the secrets in templates, each with its entry."""
    found = (path[:2] for path in paths_of(value) if path[0] in SCOPES)
    return list(dict.fromkeys(found))


class Vault(Struct, frozen=True):
    """The access of a worker to secrets. Nothing is read before it is needed."""

    read: Callable[[str], Awaitable[Any]]
    keychain: Callable[[Sequence[Mapping[str, Any]], Owner, Render], Entries]
    remember: Callable[[Any], None]  # a value that is secret from now on
    conceal: Callable[[str], str]  # takes all secrets out of a text
    seal: Callable[[Any, str], Any]  # a value, for a run
    open_all: Callable[[Any, str, Collection[str]], Any]  # what is sealed in a value, of a run, by its digests


class Wallet:
    """The secrets of one pipeline."""

    def __init__(self, vault: Vault | None, entries: Sequence[Mapping[str, Any]], owner: Owner, render: Render) -> None:
        self._vault, self._of, self._owner, self._render = vault, entries, owner, render
        self._entries: Entries | None = None

    async def names(self, wanted: Sequence[tuple[str, ...]]) -> dict[str, Any]:
        """Return what templates read as `keychain` and `secrets`: only the entries that they name."""
        found: dict[str, dict[str, Any]] = {scope: {} for scope in SCOPES}
        for path in wanted:
            if len(path) < 2:
                raise _unusable(f"`{path[0]}` as a whole cannot be read: name what is wanted, as in `{path[0]}.name`")
            scope, name = path
            found[scope][name] = dict(await self.entry(name)) if scope == "keychain" else await self._read(name)
        return found

    async def entry(self, alias: str) -> Mapping[str, Any]:
        if self._vault is None:
            raise _unusable("this worker has no keychain")
        if self._entries is None:
            self._entries = self._vault.keychain(self._of, self._owner, self._render)
        return await self._entries.entry(alias)

    def seal(self, value: Any) -> Any:
        if self._vault is None:
            raise _unusable("this worker has no key to seal a secret result with")
        return self._vault.seal(value, self._owner[1])

    def remember(self, value: Any) -> None:
        if self._vault is not None:
            self._vault.remember(value)

    def conceal(self, text: str) -> str:
        return text if self._vault is None else self._vault.conceal(text)

    def opened(self, value: Any, sealed: Collection[str]) -> Any:
        """Return the values with the sealed ones opened.

        `sealed` are their digests; other data that looks sealed is plain data.
        """
        return value if self._vault is None or not sealed else self._vault.open_all(value, self._owner[1], sealed)

    async def _read(self, name: str) -> Any:
        if self._vault is None:
            raise _unusable("this worker has no secrets")
        try:
            return await self._vault.read(name)
        except NotFound as error:
            raise ToolFailed(Fault("auth", str(error), retryable=False)) from None


def _unusable(why: str) -> ToolFailed:
    return ToolFailed(Fault("auth", why, retryable=False))


class Unseen:
    """Takes the output of a task whose result is secret, because the output often contains it.

    Lines are counted, not shown.
    """

    def __init__(self, say: Say) -> None:
        self._say, self._lines = say, 0

    def say(self, stream: str, text: str) -> None:
        self._lines += not isinstance(text, Piece)

    def end(self) -> None:
        if self._lines:
            self._say("stderr", f"({self._lines} lines are not shown: the output of this step is secret)")


def hidden(fault: Fault) -> Fault:
    """Return the failure of a task whose result is secret, without the parts that could show the result."""
    data = fault.data if isinstance(fault.data, dict) else {"": fault.data}
    shown = {name: each for name, each in data.items() if name in ABOUT_CODE}
    brought = {name: each for name, each in data.items() if name not in ABOUT_CODE}
    lines = sorted({line for text in _texts(brought) for line in text.split("\n")}, key=len, reverse=True)
    found = [line.strip() for line in lines if len(line.strip()) >= SHORTEST_LINE]
    message, traceback = fault.message, fault.traceback
    for line in found:
        message, traceback = message.replace(line, HIDDEN), traceback.replace(line, HIDDEN)
    left = {**_without_texts(brought), **shown}
    return structs.replace(
        fault, message=message, traceback=traceback, data=left if isinstance(fault.data, dict) else left[""]
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _without_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_texts(each) for each in value]
    return HIDDEN if isinstance(value, str) and value else value


DATABASE_NAMES = {  # as credentials of NoETL, and others, call them
    **{"db_host": "host", "db_port": "port", "db_user": "user", "db_password": "password", "db_name": "database"},
    **{"username": "user", "dbname": "database", "dsn": "url", "uri": "url"},
}


def _as_database(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a connection. A credential that is a single text is an address."""
    value = entry.get("value")
    if isinstance(value, str) and "://" in value and entry.get("token") == value:
        return {"url": value}
    return {DATABASE_NAMES.get(name, name): each for name, each in entry.items()}


def as_auth(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the keychain in the form that a tool takes."""
    if kind in ("postgres", "transfer"):
        return _as_database(entry)
    if kind != "http":
        return dict(entry)
    token = entry.get("access_token") or entry.get("token")
    if token is not None:
        return {"bearer": token}
    if "username" in entry:
        return {"basic": {"username": entry["username"], "password": entry.get("password", "")}}
    key = entry.get("api_key") or entry.get("key") or entry.get("value")
    if key is None:
        known = ", ".join(map(str, entry)) or "nothing"
        raise _unusable(f"a request needs `token`, `username` and `password`, or `api_key`; the entry has {known}")
    return {"api_key": {"header": entry.get("header", "X-API-Key"), "value": key}}
