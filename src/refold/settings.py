"""Every setting, one frozen object, read once at the edge."""

from collections.abc import Mapping

from msgspec import Struct, convert


class Settings(Struct, frozen=True, kw_only=True):
    lease_for: float = 30.0  # seconds; the heartbeat comes three times in it
    sweep_every: float = 1.0
    poll: float = 1.0  # how long a lost ring of the doorbell can cost
    slots: int = 16  # commands a worker runs at once
    states_kept: int = 1000
    depth_limit: int = 100  # runs that may stand above one another
    processes: int = 0  # that run steps in isolation; 0: one for each processor
    process_grace: float = 2.0  # seconds from the polite to the hard end of such a step
    private_addresses: bool = False  # whether http may reach addresses that are not public
    stop_grace: float = 10.0  # seconds for steps to finish when the program is asked to stop

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """REFOLD_LEASE_FOR and so on; what is not given has its default."""
        given = {
            name: environment[f"REFOLD_{name.upper()}"]
            for name in cls.__struct_fields__
            if f"REFOLD_{name.upper()}" in environment
        }
        return convert(given, cls, strict=False)
