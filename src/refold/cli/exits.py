"""How the program ends: every deliberate error as one message and one exit code."""

from refold import errors

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, UNREACHABLE, BUG, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 70, 124, 130

CODES: tuple[tuple[type[errors.RefoldError], int], ...] = (
    (errors.InvalidPlan, USAGE),
    (errors.InvalidValue, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.Unavailable, CONFLICT),  # locked: somebody else is at it
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
    """Of a run that is over; a cancelled one did not do what it was asked to."""
    if timed_out:
        return TIMED_OUT
    return OK if status == "completed" else FAILED
