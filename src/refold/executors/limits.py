"""What a tool that has a process of its own may use up, and what it sees of the environment."""

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH", "DYLD_*", "OMP_*", "OPENBLAS_*", "MKL_*", "CUDA_*"),
    *("SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "*_PROXY", "*_proxy"),
)
OWN = "REFOLD_"


class Limits(Struct, frozen=True, kw_only=True):
    """For each process; 0: none beyond those that hold for the engine."""

    memory: int = 0  # bytes that it can write to
    address_space: int = 0  # bytes, with what is only reserved
    cpu: int = 0  # seconds of a processor
    file_size: int = 0  # bytes of a file that it writes
    open_files: int = 0
    processes: int = 0  # of its user, threads included

    def told(self) -> list[str]:
        """As a supervisor takes them; time is counted for each program anew."""
        names = ("memory", "address_space", "file_size", "open_files", "processes")
        return [f"{name}={getattr(self, name)}" for name in names if getattr(self, name)]


def most_memory() -> int:
    """Three quarters of what the machine has, so that one tool cannot take it all."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    except (ValueError, OSError):
        return 0  # nobody knows


def environment(whole: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """What tools see of it: names that tell where they are, and those added; none that is Refold's own."""
    names = [*PASSED, *more]
    return {name: value for name, value in whole.items() if not name.startswith(OWN) and _is_one_of(name, names)}


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    """A star stands for any beginning or end."""
    return any(
        name == each
        or (each.endswith("*") and name.startswith(each[:-1]))
        or (each.startswith("*") and name.endswith(each[1:]))
        for each in patterns
    )
