"""The graph of imports sees every way in which one file can name another."""

from pathlib import Path

import pytest

from tests import imports

WAYS = {
    "at_the_top.py": "import refold.target",
    "from_a_module.py": "from refold.target import Thing",
    "from_a_room.py": "from refold import target",
    "relative.py": "from . import target",
    "in_a_function.py": "def f() -> None:\n    from refold.target import Thing",
    "for_types.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from refold.target import Thing",
    "by_string.py": "from importlib import import_module\nimport_module('refold.target')",
    "by_name_of_a_function.py": "WHERE = 'refold.target:thing'",
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "refold"
    folder.mkdir()
    for name in ("__init__.py", "target.py"):
        (folder / name).touch()
    monkeypatch.setattr(imports, "SRC", folder)
    return folder


@pytest.mark.parametrize("file", WAYS)
def test_an_import_is_seen_however_it_is_written(source: Path, file: str) -> None:
    (source / file).write_text(WAYS[file], encoding="utf-8")
    assert imports.import_graph()[f"refold.{Path(file).stem}"] == {"refold.target"}


def test_a_logger_and_a_mention_are_not_imports(source: Path) -> None:
    text = "import logging\nLOG = logging.getLogger('refold.target')\nWHY = 'see refold.target'\n"
    (source / "speaks.py").write_text(text, encoding="utf-8")
    assert imports.import_graph()["refold.speaks"] == set()
