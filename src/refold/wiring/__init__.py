"""Makes a running engine from settings: the only place where parts are put together."""

from refold.wiring.opening import open_engine, open_process, options, run_sync
from refold.wiring.process import Process, assemble, open_secrets
from refold.wiring.store import copy_database, open_intake, rebuild_file
from refold.wiring.world import WallClock, World, language, working_directory

__all__ = [
    "Process",
    "WallClock",
    "World",
    "assemble",
    "copy_database",
    "language",
    "open_engine",
    "open_intake",
    "open_process",
    "open_secrets",
    "options",
    "rebuild_file",
    "run_sync",
    "working_directory",
]
