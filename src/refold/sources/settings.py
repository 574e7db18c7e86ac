"""Checks the settings of a source against its description: names, types, and the secrets that it names."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refold.errors import NotFound
from refold.sources.services import Secret
from refold.templates.paths import nearest
from refold.tool_api import READER_KEYS, ToolInfo, checked_value, refused

Read = Callable[[str], Awaitable[Any]]


async def settings_of(info: ToolInfo, given: Mapping[str, Any], read: Read | None) -> dict[str, Any]:
    """Return the settings as the source takes them, without nulls. Raises ToolFailed, which shows no secret."""
    known = {key.name: key for key in info.keys}
    settings = {name: value for name, value in given.items() if value is not None}
    beside = {name: settings.pop(name) for name in READER_KEYS if name in settings and name not in known}
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(f'`{each}`' for each in known)}"
            raise refused(f"the source {info.kind} has no key `{name}`{hint}")
    for key in info.keys:
        if key.required and key.name not in settings:
            raise refused(f"the source {info.kind} needs `{key.name}`")
    for problem in info.check(settings) if info.check is not None else ():
        raise refused(f"{problem.message}; {problem.hint}" if problem.hint else problem.message)
    for name, value in settings.items():
        opened = await _opened(value, read) if known[name].secret else value
        settings[name] = opened if isinstance(opened, Secret) else checked_value(known[name], opened)
    return {**beside, **settings}


def did_you_mean(name: str, known: Any) -> str:
    close = nearest(name, known)
    return f"; did you mean `{close}`?" if close else ""


async def _opened(value: Any, read: Read | None) -> Any:
    if isinstance(value, list):
        return [await _opened(each, read) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"secret"} and isinstance(value["secret"], str):
        return _marked(await _read(value["secret"], read))
    return {name: await _opened(each, read) for name, each in value.items()}


async def _read(name: str, read: Read | None) -> Any:
    if read is None:
        raise refused(f"the secret {name!r} is wanted, and this worker has no secrets", "auth")
    try:
        return await read(name)
    except NotFound as error:
        raise refused(str(error), "auth") from None


def _marked(value: Any) -> Any:
    """Mark a secret, which is a text or a map of fields."""
    if isinstance(value, Mapping):
        return {name: _marked(each) for name, each in value.items()}
    return Secret(value) if isinstance(value, str) else value
