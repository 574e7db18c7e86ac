"""The pinned packages, and the platforms that they are pinned for."""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "constraints.txt"
BUILD_FILE = ROOT / "constraints-build.txt"
LICENCES = ROOT / "docs" / "reference" / "licences.md"

PIN = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^ \\;]+)(?: ; (?P<marker>[^\\]+?))?(?P<hashes>(?: \\\n +--hash=\S+)*)$", re.M
)
SYSTEMS = {
    "Linux x86_64": ("linux", "x86_64", r"manylinux.*_x86_64"),
    "Linux aarch64": ("linux", "aarch64", r"manylinux.*_aarch64"),
    "macOS arm64": ("darwin", "arm64", r"macosx_.*_(arm64|universal2)"),
}


class Target:
    """A version of CPython on a kind of machine."""

    def __init__(self, version: str, place: str) -> None:
        self.version, self.place = version, place
        self.system, self.machine, self._platform = SYSTEMS[place]

    def __str__(self) -> str:
        return f"CPython {self.version} on {self.place}"

    @cached_property
    def markers(self) -> dict[str, str]:
        """What requirements can ask about it."""
        return {
            "python_version": self.version,
            "python_full_version": f"{self.version}.0",
            "implementation_name": "cpython",
            "implementation_version": f"{self.version}.0",
            "platform_python_implementation": "CPython",
            "sys_platform": self.system,
            "platform_system": "Linux" if self.system == "linux" else "Darwin",
            "platform_machine": self.machine,
            "platform_release": "",
            "platform_version": "",
            "os_name": "posix",
        }

    @property
    def marker(self) -> str:
        keys = ("python_version", "sys_platform", "platform_machine")
        return " and ".join(f'{key} == "{self.markers[key]}"' for key in keys)

    def takes(self, tags: Iterable[Any]) -> bool:
        """Whether a wheel with these tags can be installed there."""
        return any(self._takes(each.interpreter, each.abi, each.platform) for each in tags)

    def _takes(self, interpreter: str, abi: str, platform: str) -> bool:
        own = f"cp{self.version.replace('.', '')}"
        if platform != "any" and not re.fullmatch(self._platform, platform):
            return False
        if abi == "abi3":
            minor = re.fullmatch(r"cp3(\d+)", interpreter)
            return minor is not None and int(minor[1]) <= int(self.version.split(".")[1])
        return (interpreter == own and abi in (own, "none")) or (
            interpreter in ("py3", own.replace("cp", "py")) and abi == "none"
        )


TARGETS = [Target(version, place) for version in ("3.11", "3.12", "3.13") for place in SYSTEMS]


def read_pins(*files: Path) -> dict[str, str]:
    """Canonical name -> version."""
    found: dict[str, str] = {}
    for file in files:
        if file.exists():
            text = file.read_text(encoding="utf-8")
            found |= {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in PIN.finditer(text)}
    return found
