"""Files of which somebody always finds a whole one, and which only their owner can read."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.errors import Unusable

try:
    import fcntl
except ImportError:  # where files cannot be locked like this, the last of two who write at once is heard
    fcntl = None  # type: ignore[assignment]

OWNER_ONLY = 0o600


def read(path: Path) -> bytes | None:
    """None if it is not there; Unusable if others can get at it."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name != "nt" and mode & 0o077:
                raise Unusable(f"{path} has mode {mode:04o}: others may get at it; `chmod 600 {path}` helps")
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None


def write(path: Path, data: bytes) -> None:
    """All of it or nothing, whatever happens meanwhile."""
    with _draft(path, data) as draft:
        os.replace(draft, path)


def make(path: Path, data: bytes) -> bool:
    """False if somebody else has made it meanwhile."""
    with _draft(path, data) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    return True


@contextmanager
def _draft(path: Path, data: bytes) -> Iterator[Path]:
    draft = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield draft
        _sync_folder(path.parent)
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}") from None
    finally:
        with suppress(FileNotFoundError):  # it has its name by now
            os.unlink(draft)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One who changes it after the other."""
    if fcntl is None:
        yield
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f"{path.name}-lock"), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    except OSError as error:
        raise Unusable(f"{path} cannot be locked: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
