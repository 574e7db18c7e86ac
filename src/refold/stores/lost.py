"""Logs the leases that a sweep has taken back from their workers."""

from collections.abc import Sequence

from refold.ports import Lease


def log_lost(leases: Sequence[Lease]) -> None:
    """Each of them ran out, or its process has ended, and its command goes back to the queue."""
    if not leases:
        return
    from refold.logs import WARNING, event, logger  # not loaded by commands that only read a file

    log, words = logger("store"), "lease lost: its command goes back to the queue"
    for lease in leases:
        command = lease.command
        known = {"run": lease.run, "step": command.step, "command": command.id, "worker": lease.worker}
        event(log, WARNING, words, known, generation=lease.generation, losses=lease.losses + 1)
