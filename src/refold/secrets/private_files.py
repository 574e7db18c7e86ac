"""Files that only their owner can read, and that are replaced as a whole, so that no reader sees half of one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.errors import Unusable

try:
    import fcntl
except ImportError:  # where files cannot be locked like this, the last of two simultaneous writers wins
    fcntl = None  # type: ignore[assignment]

OWNER_ONLY = 0o600


def read(path: Path) -> bytes | None:
    """Return None if there is no such file; raise Unusable if other users have access to it."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name != "nt" and mode & 0o077:
                raise Unusable(f"{path} has mode {mode:04o}: other users have access to it; `chmod 600 {path}` helps")
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None


def write(path: Path, data: bytes) -> None:
    """Replace the file: all of it or nothing, whatever happens meanwhile."""
    with _draft(path, data) as draft:
        os.replace(draft, path)


def make(path: Path, data: bytes) -> bool:
    """Create the file; return False if another process has created it meanwhile."""
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
        with suppress(FileNotFoundError):  # it was renamed
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
    """Hold the lock of a file, so that processes change it one after the other."""
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
