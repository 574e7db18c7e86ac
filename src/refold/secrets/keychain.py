"""The keychain of a playbook: named entries, each fetched when it is first used and cached according to its scope."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import InvalidValue, NotFound, RefoldError, ToolFailed
from refold.ports import Secrets
from refold.secrets.entry_cache import EntryCache, Fetched
from refold.secrets.hidden import Hidden, leaves
from refold.secrets.keychain_kinds import KINDS, Sources, as_written, seconds, unknown_kind

TTL = 300.0  # seconds that an entry is cached by default
EARLY = 60.0  # seconds before its end that an entry is renewed
SCOPES = ("local", "global", "shared")

Render = Callable[[Any, Mapping[str, Any]], Any]
"""Evaluates the templates in a value, with these names."""


class EntryOwner(Struct, frozen=True):
    """The owner of a keychain: the plan, the run, and the run at the top of its tree."""

    plan: str
    run: str
    root: str = ""

    def key(self, name: str, scope: str) -> str:
        where = {"local": self.run, "global": "global", "shared": self.root or self.run}[scope]
        return f"{name}:{self.plan}:{where}"


class KeychainEntry(Struct, frozen=True):
    name: str
    kind: str
    scope: Literal["local", "global", "shared"]
    keys: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, {self.kind!r})"  # without the keys: those of a static entry are its values


class Keychain:
    """`names` are what templates can read besides `keychain`, such as the workload."""

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        place: EntryOwner,
        sources: Sources,
        kept: EntryCache,
        render: Render = lambda value, names: value,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self._entries = {entry.name: entry for entry in map(_entry, entries)}
        self._place, self._sources, self._kept, self._render = place, sources, kept, render
        self._names = names or {}

    def aliases(self) -> Collection[str]:
        return list(self._entries)

    async def field(self, alias: str, field: str) -> Any:
        fields = await self.entry(alias)
        if field not in fields:
            known = ", ".join(map(str, fields)) or "none"
            raise _failed(f"the entry {alias!r} of the keychain has no field {field!r}; it has {known}", "not_found")
        return fields[field]

    async def entry(self, alias: str) -> Mapping[str, Any]:
        """Return all its fields by name. A name that is not in the keychain is that of a stored credential. Raise
        ToolFailed, whose message contains none of their values."""
        entry = self._entries.get(alias) or KeychainEntry(alias, "credential", "local", {"credential": alias})
        try:
            return await self._kept.get(self._place.key(alias, entry.scope), partial(self._fetch, entry))
        except ToolFailed as error:
            if alias in self._entries:
                raise
            cause = error.fault.message.partition(" of the keychain: ")[2]
        known = ", ".join(self._entries) or "none"
        why = f"the keychain has no entry {alias!r}; it has {known}. As a stored secret: {cause}"
        raise _failed(why, "not_found")

    async def _fetch(self, entry: KeychainEntry) -> Fetched:
        if entry.kind not in KINDS:
            raise _failed(
                f"{unknown_kind(entry.kind)}: the entry {entry.name!r} of the keychain cannot be used", "auth"
            )
        keys = await self._rendered(entry)
        try:
            fetched = await KINDS[entry.kind](keys, self._sources)
            default = TTL if fetched.good_for == float("inf") else None
            good_for = min(fetched.good_for, seconds(keys.get("ttl"), default))
        except (NotFound, InvalidValue) as error:
            raise _failed(f"the entry {entry.name!r} of the keychain: {error}", "auth") from None
        self._sources.remember(_not_written(fetched.fields, entry) if entry.kind == "static" else fetched.fields)
        early = min(EARLY, good_for / 10) if keys.get("auto_renew") else 0.0
        return Fetched(Hidden(fetched.fields), good_for, good_for - early)

    async def _rendered(self, entry: KeychainEntry) -> dict[str, Any]:
        """Its keys with their templates rendered, except those that name variables and files."""
        fixed = as_written(entry.kind, entry.keys)
        templates = {name: value for name, value in entry.keys.items() if name not in fixed}
        before = [name for name in self._before(entry) if _mentions(templates, name)]
        chain = {name: dict(await self.entry(name)) for name in before}
        try:
            rendered = self._render(templates, {**self._names, "keychain": chain})
            whole = await _resolved(rendered, self._sources.secrets)
        except RefoldError as error:
            raise _failed(f"the entry {entry.name!r} of the keychain: {error}", "auth") from None
        return {**whole, **{name: entry.keys[name] for name in fixed}}

    def _before(self, entry: KeychainEntry) -> list[str]:
        names = list(self._entries)
        return names[: names.index(entry.name)] if entry.name in self._entries else []


def _entry(keys: Mapping[str, Any]) -> KeychainEntry:
    name, kind, scope = keys.get("name"), keys.get("kind"), keys.get("scope", "local")
    if not isinstance(name, str) or not name or not isinstance(kind, str):
        raise InvalidValue("keychain", "every entry needs a `name` and a `kind`")
    if scope not in SCOPES:
        raise InvalidValue(f"keychain.{name}.scope", f"must be one of {', '.join(SCOPES)}")
    kept = {key: value for key, value in keys.items() if key not in ("name", "kind", "scope")}
    return KeychainEntry(name, kind, scope, kept)


def _not_written(fields: Mapping[str, Any], entry: KeychainEntry) -> dict[str, Any]:
    """The fields without the texts in the playbook itself, which are not secret; what its templates render is."""
    written = frozenset(leaves(entry.keys))
    return {name: [leaf for leaf in leaves(field) if leaf not in written] for name, field in fields.items()}


def _mentions(value: Any, name: str) -> bool:
    if isinstance(value, str):
        return "{" in value and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", value) is not None
    if isinstance(value, Mapping):
        return any(_mentions(each, name) for each in value.values())
    return isinstance(value, list | tuple) and any(_mentions(each, name) for each in value)


async def _resolved(value: Any, secrets: Secrets) -> Any:
    """The value with each `{secret: NAME}` in it replaced by the secret."""
    if isinstance(value, Mapping):
        if value.keys() == {"secret"} and isinstance(value["secret"], str):
            return await secrets.read(value["secret"])
        return {name: await _resolved(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [await _resolved(each, secrets) for each in value]
    return value


def _failed(why: str, kind: str) -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))
