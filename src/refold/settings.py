"""Every setting, one frozen object, read once at the edge."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert, json

from refold.core.retention import Retention
from refold.errors import InvalidValue
from refold.executors.limits import Limits, most_memory

PROCESSES_EACH = 4  # that run steps in isolation, for each processor


class Settings(Struct, frozen=True, kw_only=True):
    lease_for: float = 30.0  # seconds after which the command of a silent worker is lost; three heartbeats come in it
    sweep_every: float = 1.0  # seconds between two looks for expired leases, due timers and letters
    poll: float = 1.0  # seconds that a lost ring of the doorbell can cost
    listen_every: float = 0.2  # seconds between two looks for what other processes have written, where they cannot ring
    doorbell: str = ""  # how processes on PostgreSQL ring each other: nats://host:4222; empty: by NOTIFY
    slots: int = 16  # commands that a worker runs at a time
    parked_bodies: int = 10_000  # bodies that wait in memory, without a slot; of more, some start over
    queues: tuple[str, ...] = ()  # those from which a worker takes commands; empty: all
    states_kept: int = 1000  # runs whose state is kept in memory, so that a turn need not read it
    depth_limit: int = 100  # how deep child runs may be nested
    processes: int = 0  # processes that run steps in isolation, at most; 0: four for each processor. Idle ones end
    ray: str = ""  # the Ray cluster for steps with `isolation: ray`: host:port, or `auto`; empty: none
    ray_slots: int = 1000  # steps of a worker that are on Ray at a time; they need no slot
    process_grace: float = 2.0  # seconds from the polite to the hard end of such a step or of a program
    tool_memory: int | None = None  # bytes for a process of a tool; None: three quarters of the machine's; 0: any
    tool_address_space: int = 0  # bytes, with what is only reserved; 0: any
    tool_cpu: int = 86_400  # seconds of a processor for a try; 0: any
    tool_file_size: int = 64 * 1024**3  # bytes of each file that it writes; 0: any
    tool_open_files: int = 8192  # files that it may have open; 0: as many as the engine
    tool_processes: int = 4096  # processes of the user, threads included; 0: any
    pass_env: tuple[str, ...] = ()  # what else of the environment tools see: names, or beginnings with a star
    private_addresses: bool = False  # whether http may reach addresses that are not public
    secrets: str = ""  # the encrypted file of secrets; empty: the one next to the database
    secrets_folder: str = "/run/secrets"  # the folder with a file for each secret
    key_file: str = ""  # the file with the key of secrets; empty: in the user's configuration. REFOLD_KEY wins
    keyring: bool = False  # whether the system's keyring is asked for secrets
    artifacts: str = ""  # the folder of the tool `artifact`; empty: next to the database, or .refold/artifacts
    retention: Retention = Retention()  # which runs that are over are removed: `age`, `count`, `status`; empty: none
    retention_every: float = 60.0  # seconds between two looks for runs to remove
    stop_grace: float = 10.0  # seconds for steps to finish when the program is stopped

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """REFOLD_LEASE_FOR and so on; what is not given has its default. Raises InvalidValue."""
        kinds = get_type_hints(cls)
        found = {name: variable(name) for name in kinds if variable(name) in environment}
        return cls(**{name: from_text(kinds[name], environment[where], where) for name, where in found.items()})

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


def variable(name: str) -> str:
    """Return the variable of the environment for a setting."""
    return f"REFOLD_{name.upper()}"


def from_text(kind: Any, text: str, where: str) -> Any:
    """Return the value that a variable of the environment stands for. Raises InvalidValue."""
    if kind is Retention:
        return from_value(kind, {"age": text}, where)
    if get_origin(kind) is tuple:
        return tuple(text.replace(",", " ").split())
    if get_origin(kind) is Literal:
        return from_value(kind, text.lower(), where)
    try:
        return convert(text, kind, strict=False)
    except ValidationError:
        raise InvalidValue(where, f"{as_json(text)} is not {_wanted(kind)}") from None


def from_value(kind: Any, value: Any, where: str) -> Any:
    """Return a value of a settings file, if it has the type of its setting. Raises InvalidValue."""
    try:
        return convert(value, kind)
    except ValidationError as error:
        if kind is Retention:
            raise InvalidValue(where, str(error)) from None
        raise InvalidValue(where, f"{as_json(value)} is not {_wanted(kind)}") from None


def as_json(value: Any) -> str:
    """Return a value as the person who wrote it would write it; dates and times of TOML as text."""
    return json.encode(value).decode()


def _wanted(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(each for each in get_args(kind) if each)}"
    if get_origin(kind) is tuple:
        return 'a list of texts such as ["one", "two"]'
    names = {float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "a whole number")
