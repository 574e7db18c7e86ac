"""Secrets as files, one for each, as container runtimes mount them: `/run/secrets/<name>`."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from refold.errors import Unusable
from refold.secrets.names import LARGEST, NAME

MOUNTED = Path("/run/secrets")  # what is here was put here by a container runtime, which lets everybody in it read


class Folder:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def about(self, name: str) -> str:
        return f"the folder {self.path}"

    async def find(self, name: str) -> str | None:
        return self.text(name)

    def text(self, name: str) -> str | None:
        """Without one line end at its end. None if there is no such file; Unusable if others may get at it."""
        if not NAME.fullmatch(name):
            return None
        file = self.path / name
        try:
            inside = file.resolve().is_relative_to(self.path.resolve())
            with open(file, "rb") as opened:
                _check(file, os.fstat(opened.fileno()), inside)
                data = opened.read(4 * LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise Unusable(f"the secret in {file} cannot be read: {error.strerror}") from None
        return text_of(data, str(file))

    def names(self) -> Collection[str]:
        try:
            with os.scandir(self.path) as found:
                return [each.name for each in found if NAME.fullmatch(each.name) and each.is_file()]
        except FileNotFoundError:
            return []
        except OSError as error:
            from refold.logs import WARNING, event, logger  # not loaded where there is nothing to say

            why = error.strerror or type(error).__name__
            event(logger("secrets"), WARNING, "the folder of secrets cannot be read", folder=str(self.path), why=why)
            return []


def text_of(data: bytes, where: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Unusable(f"the secret in {where} is no UTF-8 text; what is not text can be kept as base64") from None
    return text.removesuffix("\n").removesuffix("\r")


def _check(file: Path, found: os.stat_result, inside: bool) -> None:
    if not inside:
        raise Unusable(f"{file} leads out of its folder")
    if os.name == "nt":
        return
    wide = stat.S_IWGRP | stat.S_IWOTH | (0 if file.parent == MOUNTED else stat.S_IROTH)
    if found.st_mode & wide:
        mode = stat.S_IMODE(found.st_mode)
        raise Unusable(f"{file} has mode {mode:04o}: others may read or change it; `chmod 600 {file}` helps")
