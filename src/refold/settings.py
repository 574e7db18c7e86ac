"""Every setting, one frozen object, read once at the edge."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert

from refold.errors import InvalidValue
from refold.executors.limits import Limits, most_memory
from refold.logs import LEVELS


class Settings(Struct, frozen=True, kw_only=True):
    lease_for: float = 30.0  # seconds; the heartbeat comes three times in it
    sweep_every: float = 1.0
    poll: float = 1.0  # how long a lost ring of the doorbell can cost
    listen_every: float = 0.2  # seconds between two looks for what other processes have written
    slots: int = 16  # commands a worker runs at once
    parked_bodies: int = 10_000  # bodies that wait in memory, without a slot; of more, some start over
    queues: tuple[str, ...] = ()  # from which a worker takes commands; empty: all
    states_kept: int = 1000
    depth_limit: int = 100  # how deep child runs may be nested
    processes: int = 0  # that run steps in isolation; 0: one for each processor
    process_grace: float = 2.0  # seconds from the polite to the hard end of such a step
    tool_memory: int | None = None  # bytes for a process of a tool; None: three quarters of the machine's; 0: any
    tool_address_space: int = 0  # bytes, with what is only reserved; 0: any
    tool_cpu: int = 86_400  # seconds of a processor for a try; 0: any
    tool_file_size: int = 64 * 1024**3  # bytes of each file that it writes; 0: any
    tool_open_files: int = 8192  # 0: as many as the engine
    tool_processes: int = 4096  # of the user, threads included; 0: any
    pass_env: tuple[str, ...] = ()  # what else of the environment tools see: names, or beginnings with a star
    private_addresses: bool = False  # whether http may reach addresses that are not public
    secrets: str = ""  # the encrypted file of secrets; empty: the one next to the database
    secrets_folder: str = "/run/secrets"  # with a file for each secret
    key_file: str = ""  # of what is encrypted; empty: in the user's own configuration. REFOLD_KEY wins over it
    keyring: bool = False  # whether the system's keyring is asked for secrets
    artifacts: str = ""  # the folder of the tool `artifact`; empty: next to the database, or .refold/artifacts
    stop_grace: float = 10.0  # seconds for steps to finish when the program is stopped

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """REFOLD_LEASE_FOR and so on; what is not given has its default."""
        given: dict[str, Any] = {
            name: environment[f"REFOLD_{name.upper()}"]
            for name in cls.__struct_fields__
            if f"REFOLD_{name.upper()}" in environment
        }
        for name in given.keys() & {"pass_env", "queues"}:
            given[name] = given[name].replace(",", " ").split()
        return convert(given, cls, strict=False)

    @property
    def tool_limits(self) -> Limits:
        return Limits(
            memory=most_memory() if self.tool_memory is None else self.tool_memory,
            address_space=self.tool_address_space,
            cpu=self.tool_cpu,
            file_size=self.tool_file_size,
            open_files=self.tool_open_files,
            processes=self.tool_processes,
        )


LOG, LOG_LEVEL = "REFOLD_LOG", "REFOLD_LOG_LEVEL"


class LogSettings(Struct, frozen=True):
    """How the program prints the log of the engine."""

    mode: str = "text"  # or json
    level: str = "info"  # and what weighs more

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "LogSettings | None":
        """REFOLD_LOG and REFOLD_LOG_LEVEL; None if neither is given. Raises InvalidValue."""
        mode, level = environment.get(LOG, ""), environment.get(LOG_LEVEL, "").lower()
        if not mode and not level:
            return None
        if mode not in ("", "text", "json"):
            raise InvalidValue(LOG, f"{mode!r} is neither text nor json")
        if level and level not in LEVELS:
            raise InvalidValue(LOG_LEVEL, f"{level!r} is not a level; the levels are {', '.join(LEVELS)}")
        return cls(mode or "text", level or "info")
