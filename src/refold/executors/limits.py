"""Limits for tools that run in processes of their own, and the part of the environment that they see."""

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH", "DYLD_*", "OMP_*", "OPENBLAS_*", "MKL_*", "CUDA_*"),
    *("SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "*_PROXY", "*_proxy"),
)
OWN_PREFIX = "REFOLD_"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of each process; 0: no other limit than the engine itself has."""

    memory: int = 0  # bytes that it can write to
    address_space: int = 0  # bytes, including those that are only reserved
    cpu: int = 0  # seconds of processor time
    file_size: int = 0  # bytes of a file that it writes
    open_files: int = 0
    processes: int = 0  # of its user, including threads

    def arguments(self) -> list[str]:
        """The arguments of a supervisor; processor time is missing because it is counted per program."""
        names = ("memory", "address_space", "file_size", "open_files", "processes")
        return [f"{name}={getattr(self, name)}" for name in names if getattr(self, name)]


def most_memory() -> int:
    """Three quarters of the machine's memory, so that one tool cannot take all of it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    except (ValueError, OSError):
        return 0  # unknown


def environment(variables: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """The variables that tools see: those that describe the system, and the extra ones, but none of Refold's own."""
    patterns = [*PASSED_VARIABLES, *extra]
    return {
        name: value for name, value in variables.items() if not name.startswith(OWN_PREFIX) and _matches(name, patterns)
    }


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """A star at the beginning or at the end of a pattern matches any text."""
    return any(
        name == pattern
        or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        or (pattern.startswith("*") and name.endswith(pattern[1:]))
        for pattern in patterns
    )
