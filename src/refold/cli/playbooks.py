"""Reads playbooks for commands, with the tools and sources that come with Refold and those that packages add."""

import os
import sys
from collections.abc import Collection, Mapping

from refold.authoring.children import names_code
from refold.authoring.coded import Coded
from refold.authoring.names import meant
from refold.authoring.playbook import Asked, Playbook, read
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

    asked = Asked(secrets=secrets if db is not None else None, sources=_sources, code=_named)
    if file == STDIN:
        return read(sys.stdin.buffer.read(), "<stdin>", Installed(CATALOG), load, **asked)
    return read(load(file), file, Installed(CATALOG), load, **asked)


def _sources() -> Mapping[str, ToolInfo]:
    from refold.sources.kinds import kinds

    return kinds()


def _named(target: str) -> Coded:
    from refold.wiring.named import named

    return named(target)


def is_code(target: str) -> bool:
    """Whether it is `module:Class` and no file."""
    return names_code(target) and not os.path.exists(target)


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
