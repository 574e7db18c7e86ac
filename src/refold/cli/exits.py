"""How a command ends: its exit code, for each kind of error, for a run that is over, and for rows it could not read."""

from refold import errors

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, UNREACHABLE = 0, 1, 2, 3, 4, 5
PAUSED, BUG, TIMED_OUT, INTERRUPTED = 6, 70, 124, 130

CODES: tuple[tuple[type[errors.RefoldError], int], ...] = (
    (errors.InvalidPlan, USAGE),
    (errors.InvalidValue, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.NotAllowed, UNREACHABLE),
    (errors.Unreachable, UNREACHABLE),
    (errors.Unavailable, CONFLICT),  # locked by another process
    (errors.Unusable, UNREACHABLE),
    (errors.Corrupt, UNREACHABLE),
    (errors.RunFailed, FAILED),
    (errors.RunCancelled, FAILED),
)


def code_of(error: errors.RefoldError) -> int:
    if isinstance(error, errors.Stopped):
        return error.code
    return next((code for kind, code in CODES if isinstance(error, kind)), FAILED)


def code_of_run(status: str, timed_out: bool) -> int:
    """Of a run that is over, or that was left because it is paused or waits; a cancelled one did not do what it was
    asked to."""
    if timed_out:
        return TIMED_OUT
    if status == "paused":
        return PAUSED
    return OK if status in ("completed", "continued", "waiting") else FAILED


class WrongRows:
    """Rows of the database that a command could not read. The command shows all other rows, names these when it has
    ended, and ends with exit code 5."""

    def __init__(self) -> None:
        self.errors: dict[str, None] = {}

    def report(self, error: errors.Corrupt) -> None:
        self.errors[str(error)] = None
