"""The tool `artifact`: writes and reads files in one folder, and reads what references refer to."""

import asyncio
import base64
import binascii
import errno
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from refold.core import codec
from refold.core.outcomes import Fault
from refold.errors import Corrupt, NotFound, ToolFailed
from refold.ports import ToolCall
from refold.tool_api import Keys, refused, type_name
from refold.tools.artifact.info import ARTIFACT


def safe_join(folder: str, name: str) -> str | None:
    """Return the real path of `name` in a folder, or None if it leads out of it.

    The name is taken as it is written: nothing in it is decoded or expanded.
    """
    if not name or "\0" in name:
        return None
    try:
        root = os.path.realpath(folder)
        path = os.path.realpath(os.path.join(root, name))
    except (OSError, ValueError):
        return None
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return path if inside else None


MAX_BYTES = 10 * 1024 * 1024
MOST_FILES = 10_000
RESULT = re.compile(r"(?:noetl|refold)://execution/([^/]+)/result/(.+)/([0-9a-f]{16,128})")
FILE = "refold://artifact/"
BOUND = ("ref", "result_ref", "uri", "data")  # what may also come with the input of the step
TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8", "base64": "application/octet-stream"}

ReadBlob = Callable[[str, str], Awaitable[bytes]]
"""A stored result, by its run and its hash. Raises NotFound."""


class ArtifactTool:
    def __init__(self, folder: str, read_blob: ReadBlob) -> None:
        self.folder, self.read_blob = folder, read_blob
        self._keys = Keys(ARTIFACT)

    async def __call__(self, call: ToolCall) -> Any:
        given = self._keys.read(call)
        keys = {**{name: given.input[name] for name in BOUND if name in given.input}, **given.keys}
        match given.keys.get("action", "get"):
            case "put":
                return await asyncio.to_thread(self._put, keys)
            case "list":
                return await asyncio.to_thread(self._list, _text(keys.get("uri", ""), "uri"))
            case _:
                return await self._get(keys)

    async def _get(self, keys: Mapping[str, Any]) -> Any:
        ref = next((keys[name] for name in ("ref", "result_ref", "uri") if keys.get(name) is not None), None)
        if isinstance(ref, Mapping):
            ref = ref.get("ref")
        if not isinstance(ref, str):
            raise refused("artifact needs `ref` or `uri` to know what to get")
        if found := RESULT.fullmatch(ref):
            return await self._stored(ref, unquote(found[1]), found[3])
        path = unquote(ref.removeprefix(FILE)) if ref.startswith(FILE) else ref
        return await asyncio.to_thread(self._read, path, keys)

    async def _stored(self, ref: str, run: str, hash: str) -> Any:
        try:
            return codec.unbox(await self.read_blob(run, hash))
        except NotFound:
            raise missing(ref) from None
        except Corrupt as error:
            raise Corrupt(f"{ref}: {error}") from error

    def _read(self, name: str, keys: Mapping[str, Any]) -> Any:
        most = keys.get("max_bytes", MAX_BYTES)
        try:
            with open(self._path(name), "rb") as file:
                data = file.read(most + 1)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise missing(name) from None
        except OSError as error:
            raise _trouble(name, error) from None
        if len(data) > most:
            raise ToolFailed(Fault("too_large", f"{name!r} has more than {most} bytes", retryable=False))
        return _decoded(name, data, _format(name, keys, None))

    def _put(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        if "data" not in keys or "uri" not in keys:
            raise refused("`put` needs `uri` and `data`")
        name = _text(keys["uri"], "uri")
        form = _format(name, keys, keys["data"])
        data, path = _encoded(keys["data"], form), self._path(name)
        try:
            _make_folder(os.path.dirname(path))
            _replace(path, data)
        except OSError as error:
            raise _trouble(name, error) from None
        meta = {"content_type": TYPES[form], "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        uri = os.path.relpath(path, os.path.realpath(self.folder))
        return {
            "kind": "result_ref",
            "ref": FILE + quote(uri),
            "store": "file",
            "scope": "permanent",
            "uri": uri,
            "meta": meta,
        }

    def _list(self, name: str) -> dict[str, Any]:
        root = os.path.realpath(self.folder)
        top = self._path(name) if name not in ("", ".") else root
        found = []
        for folder, _, files in sorted(os.walk(top)):
            for file in sorted(files):
                uri = os.path.relpath(os.path.join(folder, file), root)
                if not file.endswith(UNFINISHED) and safe_join(root, uri) is not None:
                    found.append({"uri": uri, "ref": FILE + quote(uri), "bytes": _size(os.path.join(folder, file))})
            if len(found) > MOST_FILES:
                raise refused(f"there are more than {MOST_FILES} files; name a folder in `uri`", "too_large")
        return {"files": found}

    def _path(self, name: str) -> str:
        path = safe_join(self.folder, name)
        if path is None:
            raise refused(f"{name!r} is not a path in the folder of artifacts", "storage_access")
        return path


UNFINISHED = ".refold-unfinished"


def _make_folder(path: str) -> None:
    """Create a folder and those above it, readable by this user only, whatever the umask is.

    Existing folders stay as they are. `os.makedirs` applies its mode only to the last folder.
    """
    if os.path.isdir(path):
        return
    if above := os.path.dirname(path):
        _make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another step was faster, or it is a file, as whoever writes there will learn
    os.chmod(path, 0o700)


def _replace(path: str, data: bytes) -> None:
    """Write a file so that after a crash it has either all of the new data or all of the old."""
    fresh = f"{path}.{os.urandom(4).hex()}{UNFINISHED}"
    try:
        with open(fresh, "xb", opener=_for_us_alone) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):  # what is raised below counts
            os.unlink(fresh)
        raise


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # it went away meanwhile


def _format(name: str, keys: Mapping[str, Any], data: Any) -> str:
    form = str(keys.get("format", "auto"))
    if form != "auto":
        return form
    return "json" if name.lower().endswith(".json") or not isinstance(data, str | None) else "text"


def _encoded(data: Any, form: str) -> bytes:
    if form == "json":
        return msgspec.json.encode(data)
    if not isinstance(data, str):
        raise refused(f"`data` is written as {form} and must be text, not {type_name(data)}")
    try:
        return base64.b64decode(data, validate=True) if form == "base64" else data.encode()
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise refused(f"`data` is not {'base64' if form == 'base64' else 'text'}: {error}") from None


def _decoded(name: str, data: bytes, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(data).decode()
    try:
        return msgspec.json.decode(data) if form == "json" else data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "`format: base64` reads any file"
        raise ToolFailed(Fault("parse", f"{name!r} is not {form}: {error}; {hint}", retryable=False)) from None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise refused(f"`{name}` must be text, not {type_name(value)}")
    return value


def missing(ref: str) -> ToolFailed:
    why = f"there is nothing at {ref!r}, or not yet"
    return ToolFailed(Fault("missing_reference", why, code="REFERENCE_NOT_AVAILABLE", retryable=True))


def _trouble(name: str, error: OSError) -> ToolFailed:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = f"{name!r}: {error.strerror or error}"
    return ToolFailed(Fault("storage_quota" if full else "storage_access", why, code=error.errno, retryable=full))
