"""How often and when to try again, as it is written for a step, its items, or the pages of a source."""

from refold.authoring.reading import Fields
from refold.core.plan import Retry

GROWING_DELAY = 1.0  # seconds; a delay of 0 cannot grow


def retry_of(fields: Fields) -> Retry:
    backoff = fields.get("backoff", "fixed")
    return Retry(
        attempts=fields.get("attempts", 1),
        backoff=backoff,
        delay=fields.get("delay", 0.0 if backoff == "fixed" else GROWING_DELAY),
        max_delay=fields.get("max_delay"),
        jitter=fields.get("jitter", 0.0),
        on=fields.get("on", ()),
    )
