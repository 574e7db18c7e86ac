"""Reads playbooks for commands, with the tools and sources that come with Refold and those that packages add."""

import os
import sys
from collections.abc import Collection, Mapping

from refold.authoring.names import meant
from refold.authoring.playbook import Playbook, read
from refold.cli.options import settings
from refold.cli.source import Source
from refold.descriptions import ToolInfo
from refold.errors import InvalidValue, NotFound
from refold.tools.added import Installed
from refold.tools.catalog import CATALOG

STDIN = "-"


def read_file(file: str, db: str | None = None) -> Playbook:
    """Raises InvalidPlaybook with all that is wrong with it; with a database, also secrets that there are not."""

    def secrets() -> Collection[str] | None:
        from refold.wiring import open_secrets

        return open_secrets(settings(), db).names()

    known, catalog = secrets if db is not None else None, Installed(CATALOG)
    if file == STDIN:
        return read(sys.stdin.buffer.read(), "<stdin>", catalog, load, known, _sources)
    return read(load(file), file, catalog, load, known, _sources)


def _sources() -> Mapping[str, ToolInfo]:
    from refold.sources.kinds import kinds

    return kinds()


def is_code(target: str) -> bool:
    """Whether it is `module:Class` and no file."""
    module, sign, name = target.partition(":")
    words = [*module.split("."), *name.split(".")]
    return bool(sign) and all(word.isidentifier() for word in words) and not os.path.exists(target)


def load(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}{_guess(file)}") from None
    except OSError as error:
        raise InvalidValue(file, f"cannot be read: {error.strerror}") from None


def source_of(playbook: Playbook) -> Source:
    return Source(playbook.file, playbook.source.splitlines(), playbook.places)


def _guess(file: str) -> str:
    folder, name = os.path.split(file)
    try:
        guess = meant(name, [each for each in os.listdir(folder or ".") if each.endswith((".yaml", ".yml"))])
    except OSError:
        return ""
    return f"; did you mean {os.path.join(folder, guess)}?" if guess else ""
