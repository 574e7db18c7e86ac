"""What people install has the page: the wheel is built in a clean tree, and needs no Node where it is used."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.page.conftest import WIDE
from web.build_page import PAGE, ROOT, one_at_a_time

BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
PLAYBOOK = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: hello}
workflow:
  - step: hello
    tool: {kind: noop, result: 1}
"""


def clean_tree(folder: Path) -> Path:
    """The files of the project, without what was built."""
    listed = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
        "src",
        "web",
        "*.toml",
        "*.md",
        "LICENSE",
    ]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    assert not (folder / PAGE).exists()
    return folder


def test_a_second_build_of_a_tree_waits_for_the_first(tmp_path: Path) -> None:
    def locked_at_once() -> bool:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(folder)
        return True

    with one_at_a_time(tmp_path):
        assert not locked_at_once()
    assert locked_at_once()


def built(tree: Path, into: Path, what: str = "build_wheel") -> Path:
    into.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, what, str(into)], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return built(clean_tree(folder / "tree"), folder / "made")


def test_two_builds_of_one_tree_are_equal_byte_for_byte(wheel: Path, tmp_path: Path) -> None:
    again = built(clean_tree(tmp_path / "tree"), tmp_path / "made")
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


def test_an_sdist_brings_the_page_so_that_nobody_builds_it_again(tmp_path: Path) -> None:
    sdist = built(clean_tree(tmp_path / "tree"), tmp_path / "made", "build_sdist")
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    [tree] = (tmp_path / "unpacked").iterdir()
    before = {path.name: path.read_bytes() for path in (tree / PAGE / "assets").iterdir()}
    assert before
    shutil.rmtree(tree / "web" / "src")
    with zipfile.ZipFile(built(tree, tmp_path / "again")) as archive:
        inside = {name: archive.read(name) for name in archive.namelist() if "/server/page/assets/" in name}
    assert {name.rpartition("/")[2]: data for name, data in inside.items()} == before


async def test_refold_ui_of_an_installed_wheel_shows_runs_in_a_browser(
    browser: Browser, wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "installed"
    venv.create(home, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    shutil.unpack_archive(wheel, site, "zip")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # what Refold needs; not Refold itself
    (tmp_path / "hello.yaml").write_text(PLAYBOOK)
    environment = {"HOME": str(tmp_path), "PATH": str(home / "bin")}  # there is no Node
    refold = [str(home / "bin" / "python"), "-m", "refold.cli"]
    where = subprocess.run(
        [*refold[:1], "-c", "import refold; print(refold.__file__)"], env=environment, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(site)), where
    subprocess.run([*refold, "run", "hello.yaml", "--name", "greeting"], cwd=tmp_path, env=environment, check=True)
    command = [*refold, "ui", "--no-open"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        try:
            assert "make page" not in lines[0]
            context = await browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
            page = await context.new_page()
            await page.goto(lines[-1].split()[-1])
            await expect(page.locator("#main")).to_be_visible()
            await page.keyboard.press("Control+k")
            await expect(page.get_by_role("option", name="greeting")).to_be_visible()
            await context.close()
        finally:
            process.terminate()
