"""Dead letters by the reason of their failure, and the runs that can be retried because of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, json

from refold.core.outcomes import Instant
from refold.core.read.dead_letters import DeadLetter, normalised
from refold.core.read.summary import Summary
from refold.errors import Conflict, NotFound
from refold.ports import StoreTurn, Views
from refold.queries.runs import ancestors, find_run

EVERY = 1_000_000_000  # letters
DISMISSED = "dismissed"  # the kind of the documents that say which reasons were dismissed
PAGE = 200


class FailureGroup(Struct, frozen=True):
    """Everything that failed in the same tool for the same reason."""

    fingerprint: str
    tool: str
    kind: str
    message: str
    commands: int
    runs: int
    last: Instant
    steps: list[str] = []  # where it failed, as workflow/step


class Dismissal(Struct, frozen=True):
    """A person needs no reminder of what failed for this reason until this moment."""

    at: Instant
    by: str = ""


def dismissals(views: Views) -> dict[str, Instant]:
    """When a person dismissed reasons, by fingerprint. What failed for one of them later counts again."""
    found: dict[str, Instant] = {}
    while page := views.documents(DISMISSED, next(reversed(found), ""), PAGE):
        found |= {each.id: json.decode(each.data, type=Dismissal).at for each in page}
    return found


def letters_that_count(views: Views) -> Iterator[DeadLetter]:
    """All dead letters that nobody has dismissed, the latest first."""
    until = dismissals(views)
    return (letter for letter in views.dead(limit=EVERY) if letter.at > until.get(letter.fingerprint, -1))


def failure_groups(views: Views, sees: Callable[[str], bool] | None = None) -> Iterator[FailureGroup]:
    """The latest first, without those that were dismissed. `sees`: only those of some workflows."""
    by_reason: dict[str, list[DeadLetter]] = {}
    for letter in letters_that_count(views):
        if sees is not None and not sees(letter.workflow):
            continue
        by_reason.setdefault(letter.fingerprint, []).append(letter)
    for fingerprint, letters in by_reason.items():
        first = letters[0]
        yield FailureGroup(
            fingerprint,
            first.tool,
            first.kind,
            normalised(first.message),
            sum(letter.count for letter in letters),
            len({letter.run for letter in letters}),
            max(letter.at for letter in letters),
            sorted({f"{letter.workflow}/{letter.step}" for letter in letters}),
        )


def dismiss(turn: StoreTurn, fingerprints: Iterable[str], by: str) -> None:
    """Take reasons off the list: what failed for them until now needs nobody."""
    for fingerprint in fingerprints:
        before = turn.document(DISMISSED, fingerprint)
        data = json.encode(Dismissal(turn.now, by))
        turn.put_document(DISMISSED, fingerprint, data, before.version if before is not None else 0)


def letters_of(views: Views, text: str) -> list[DeadLetter]:
    """The letters of one reason, by its fingerprint or the beginning of it."""
    exact = views.dead(text, EVERY)
    if exact:
        return list(exact)
    letters = [letter for letter in views.dead(limit=EVERY) if text and letter.fingerprint.startswith(text)]
    reasons = sorted({letter.fingerprint for letter in letters})
    if not reasons:
        raise NotFound(f"nothing has failed with the fingerprint {text!r}; `refold dlq list` shows them")
    if len(reasons) > 1:
        raise Conflict(f"{text!r} may mean {', '.join(reasons)}")
    return letters


def runs_to_retry(views: Views, fingerprints: Sequence[str], runs: Sequence[str], everything: bool) -> list[Summary]:
    """The runs in which something failed for these reasons. A child is retried through its topmost parent."""
    failed = [letter.run for letter in letters_that_count(views)] if everything else []
    failed += [letter.run for text in fingerprints for letter in letters_of(views, text)]
    failed += [find_run(views, text, changes=True).run for text in runs]
    rows = (views.summary(run) for run in dict.fromkeys(failed))
    tops = [[row, *ancestors(views, row)][-1] for row in rows if row is not None]
    return list({row.run: row for row in tops if not row.parent}.values())
