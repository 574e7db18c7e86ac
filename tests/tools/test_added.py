"""Tools that packages add, as the page of the documentation shows it: found, checked, listed and run."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.build.tools_page import page
from refold import open_engine
from refold.errors import InvalidValue
from refold.registry import TOOLS, EntryPoints
from refold.tools.catalog import CATALOG, installed_tools
from tests.cli.program import refold
from tests.tools.calls import fault_of_run, one_step

PAGE = Path(__file__).parents[2] / "docs/howto/tools-of-your-own.md"
MODULE = """\
from refold.tool_api import Keys, ToolCall, ToolInfo, ToolKey

class Shout:
    text = ToolKey(name="text", type="text", required=True, about="what to say")
    info = ToolInfo(kind="shout", about="Says it loudly.", keys=(text,), result="`{text}`", result_keys=("text",))

    async def __call__(self, call: ToolCall) -> dict[str, str]:
        keys = Keys(self.info).read(call).keys
        return {"text": keys["text"].upper() + "!"}
"""
POINT = "shout = acme_tools:Shout"
PLAYBOOK = """\
# loud.yaml
apiVersion: refold/v1
kind: Playbook
metadata: {name: loud}
workflow:
  - step: say
    tool: {kind: shout, text: "hello {{ 6 * 7 }}"}
"""


def install(folder: Path, points: str, module: str = MODULE, name: str = "acme_tools") -> None:
    """As an installer leaves a package behind."""
    (folder / f"{name}.py").write_text(module)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[refold.tools]\n{points}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, POINT)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "acme_tools", raising=False)
    return folder


def test_ten_lines_are_a_tool() -> None:
    assert len([line for line in MODULE.splitlines() if line.strip()]) <= 10


async def test_an_added_tool_runs_like_any_other(installed: Path) -> None:
    async with open_engine() as opened:
        assert await opened.run(one_step("shout", None, {"text": "hello"})) == {"text": "HELLO!"}
        fault = await fault_of_run(opened, one_step("shout", None, {}))
        assert (fault.kind, fault.message) == ("invalid_settings", "shout needs `text`")


def test_the_command_line_knows_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "loud.yaml").write_text(PLAYBOOK)
    there = {"PYTHONPATH": str(installed)}
    assert refold(tmp_path, "validate", "loud.yaml", **there).code == 0
    done = refold(tmp_path, "run", "loud.yaml", "-q", "-o", "json", **there)
    assert done.data["result"] == {"text": "HELLO 42!"}, done.err
    assert "tool.shout" in refold(tmp_path, "schema", **there).data["$defs"]
    (tmp_path / "wrong.yaml").write_text(PLAYBOOK.replace("text:", "txet:"))
    wrong = refold(tmp_path, "validate", "wrong.yaml", **there)
    assert wrong.code == 2 and "`txet`" in wrong.err + wrong.out
    assert refold(tmp_path, "validate", "loud.yaml").code == 2, "it is not there without the package"


def test_a_tool_is_documented_with_the_others(installed: Path) -> None:
    catalog = installed_tools()
    assert (list(catalog)[-1], len(catalog)) == ("shout", len(CATALOG) + 1)
    assert "## `shout`\n\nSays it loudly.\n" in page(catalog)
    assert "shout" in catalog and "whisper" not in catalog
    assert catalog.get("whisper") is None


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import no_such_thing", "it cannot be loaded: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemError('broken')", "it cannot be loaded: SystemError: broken"),
        ("x = 1", "it cannot be loaded: AttributeError"),
        ("async def Shout(call): ...", "it is not a tool with an `info` of the kind 'shout'"),
        (MODULE.replace('kind="shout"', 'kind="other"'), "it is not a tool with an `info` of the kind 'shout'"),
    ],
)
async def test_a_tool_that_cannot_be_loaded_is_named_with_its_package(installed: Path, module: str, why: str) -> None:
    (installed / "acme_tools.py").write_text(module)
    with pytest.raises(InvalidValue, match=r"tool 'shout' \(acme_tools:Shout of acme-tools\): ") as caught:
        installed_tools()["shout"]
    assert why in str(caught.value)
    async with open_engine() as opened:
        assert why in (await fault_of_run(opened, one_step("shout"))).message


def test_the_kinds_of_refold_cannot_be_taken(installed: Path) -> None:
    install(installed, "http = evil_tools:Evil\ngate = evil_tools:Evil", "raise SystemExit", "evil_tools")
    catalog = installed_tools()
    assert catalog["http"] is CATALOG["http"]
    assert list(EntryPoints(TOOLS, CATALOG)) == ["shout"]


async def test_one_object_serves_a_process_and_is_closed_with_it(installed: Path) -> None:
    counted = MODULE + "\n    made = closed = 0\n    def __init__(self): Shout.made += 1\n"
    (installed / "acme_tools.py").write_text(counted + "    async def close(self): Shout.closed += 1\n")
    async with open_engine() as opened:
        for _ in range(3):
            await opened.run(one_step("shout", None, {"text": "x"}))
    tool: Any = EntryPoints(TOOLS, CATALOG)["shout"]
    assert (tool.made, tool.closed) == (1, 1)


def test_nothing_is_loaded_where_nobody_has_added_anything(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom refold.registry import TOOLS, EntryPoints\n"
        "heavy = ('importlib.metadata', 'email')\n"
        "print(list(EntryPoints(TOOLS, ())), *[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["[]"]


def test_the_page_shows_what_is_tested_here() -> None:
    module, point, playbook = re.findall(r"```(?:python|toml|)\n(.*?)```\n", PAGE.read_text(), re.S)
    assert (module, playbook) == (MODULE, PLAYBOOK)
    assert point == '[project.entry-points."refold.tools"]\nshout = "acme_tools:Shout"\n'
