"""Tries: when a failure is tried again, when it is not, and what a wait between two of them is."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from msgspec import structs

from refold.core.facts import ItemsGivenUp, ItemsRetried, Routed, StepFault, Took
from refold.core.outcomes import SECOND, Cancelled, Fault, TimedOut
from refold.core.plan import LONGEST, Arc, Loop, Retry
from refold.core.retry import asked_to_wait, delay, may_retry
from refold.testing.core import NOON, failed, issued, reported, succeeded
from tests.core.acts import Given, plan, start, step


def tried(**retry: object) -> Given:
    return start(plan(step("a", retry=Retry(**{"attempts": 2, **retry}))))  # type: ignore[arg-type]


def waits(*, attempts: int = 6, **retry: object) -> list[float]:
    """The seconds before each further try of a step that always fails."""
    run = tried(attempts=attempts, **retry)
    found = []
    for attempt in range(1, attempts):
        then = run.when(failed("a", attempt=attempt))
        found.append(max(0, then.commands[0].not_before - NOON) / SECOND)
    return found


def test_a_failed_step_is_tried_again_after_its_delay() -> None:
    then = tried(delay=1.0).when(failed("a"))
    assert then.facts == (issued("a", attempt=2, not_before=NOON + SECOND),)
    assert (then.commands[0].attempt, then.commands[0].not_before) == (2, NOON + SECOND)


def test_without_a_delay_the_next_try_may_start_at_once() -> None:
    assert tried().when(failed("a"), after=7).facts == (issued("a", attempt=2),)


def test_the_delay_counts_from_the_turn_that_learned_of_the_failure() -> None:
    assert tried(delay=1.0).when(failed("a"), after=7).commands[0].not_before == NOON + 8 * SECOND


def test_attempts_count_the_first_try() -> None:
    run = tried(attempts=2)
    run.when(failed("a"))
    assert run.when(failed("a", attempt=2)).state.life == "failed"
    assert start(plan(step("a"))).when(failed("a")).state.life == "failed"


def test_a_fixed_backoff_waits_the_same_each_time() -> None:
    assert waits(backoff="fixed", delay=2.0) == [2, 2, 2, 2, 2]


def test_a_linear_backoff_adds_its_delay_each_time() -> None:
    assert waits(backoff="linear", delay=2.0) == [2, 4, 6, 8, 10]


def test_an_exponential_backoff_doubles_each_time_up_to_its_limit() -> None:
    assert waits(backoff="exponential", delay=1.5) == [1.5, 3, 6, 12, 24]
    assert waits(backoff="exponential", delay=1.5, max_delay=10.0) == [1.5, 3, 6, 10, 10]


def test_jitter_takes_its_share_by_chance_and_is_recorded_in_the_fact() -> None:
    run = tried(delay=10.0, jitter=0.5)
    run.chance = lambda: 0.8
    assert run.when(failed("a")).facts == (issued("a", attempt=2, not_before=NOON + 6 * SECOND),)


def test_chance_is_not_asked_where_there_is_no_jitter() -> None:
    run = tried(delay=10.0)
    run.chance = lambda: pytest.fail("asked")
    assert run.when(failed("a")).commands[0].not_before == NOON + 10 * SECOND


def test_a_fault_that_names_a_time_is_waited_for_at_least_that_long() -> None:
    assert tried(delay=1.0).when(failed("a", retry_after=30.0)).commands[0].not_before == NOON + 30 * SECOND
    assert tried(delay=60.0).when(failed("a", retry_after=30.0)).commands[0].not_before == NOON + 60 * SECOND


def test_a_fault_that_names_a_time_never_waits_longer_than_max_delay() -> None:
    run = tried(delay=1.0, max_delay=2.0)
    assert run.when(failed("a", retry_after=30.0)).commands[0].not_before == NOON + 2 * SECOND


def test_a_fault_that_asks_for_ages_waits_for_a_hundred_years_at_most() -> None:
    assert tried().when(failed("a", retry_after=1e300)).commands[0].not_before == NOON + round(LONGEST * SECOND)


def test_only_the_kinds_a_policy_names_are_tried_again() -> None:
    assert tried(on=("busy",)).when(failed("a", "busy")).facts == (issued("a", attempt=2),)
    assert tried(on=("busy",)).when(failed("a", "broken")).state.life == "failed"


def test_a_fault_that_says_so_is_not_tried_again() -> None:
    assert tried(attempts=9).when(failed("a", retryable=False)).state.life == "failed"


def test_a_timeout_is_a_try() -> None:
    run = tried(on=("timeout",))
    assert run.when(reported("a", TimedOut(2.5))).facts == (issued("a", attempt=2),)
    error = run.when(reported("a", TimedOut(2.5), attempt=2)).state.error
    assert error == StepFault("a", 1, "unhandled failure", Fault("timeout", "no result after 2.5 s"))


def test_a_command_that_an_operator_cancels_fails_without_a_further_try() -> None:
    run = start(
        plan(step("a", Arc(to="b", on="failure", when={"path": ["error", "kind"]}), retry=Retry(attempts=9)), step("b"))
    )
    then = run.when(reported("a", Cancelled("not today")))
    assert then.facts[0] == Routed((Took("a", 1, (0,)), *then.facts[0].moves[1:]))  # type: ignore[union-attr]
    assert then.state.steps[0].fault == Fault("cancelled", "not today", retryable=False)
    assert then.facts[-1] == issued("b")


def test_retries_used_up_take_the_error_arc() -> None:
    run = start(plan(step("a", Arc(to="b", on="failure"), retry=Retry(attempts=2)), step("b")))
    run.when(failed("a"))
    assert run.when(failed("a", attempt=2)).facts[-1] == issued("b")


def test_a_new_visit_has_all_its_tries_again() -> None:
    run = start(plan(step("a", Arc(to="a", when={"script": [True, False]}), retry=Retry(attempts=2))))
    run.when(failed("a"))
    run.when(succeeded("a", attempt=2))
    assert run.when(failed("a", visit=2)).facts == (issued("a", visit=2, attempt=2),)


def test_tries_are_counted_over_all_visits_and_shown() -> None:
    run = tried(attempts=3)
    run.when(failed("a"))
    assert run.when(succeeded("a", attempt=2)).state.steps[0].attempts == 2


def test_items_have_tries_of_their_own_and_those_of_a_turn_are_one_fact() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1, 2]), retry=Retry(attempts=2, delay=1.0))))
    then = run.when(failed("a", item=0), failed("a", item=2))
    assert then.facts == (ItemsRetried("a", 1, ((0, 2, NOON + SECOND), (2, 2, NOON + SECOND))),)
    assert [(command.id, command.attempt) for command in then.commands] == [("a/1/0", 2), ("a/1/2", 2)]
    run.when(succeeded("a", item=0, attempt=2))
    then = run.when(failed("a", item=2, attempt=2), failed("a", item=1))
    assert then.facts == (ItemsGivenUp("a", 1, (2,)), ItemsRetried("a", 1, ((1, 2, NOON + SECOND),)))


@for_all(
    st.sampled_from(["fixed", "linear", "exponential"]),
    st.floats(0, 1e6),
    st.none() | st.floats(0, 1e6),
    st.floats(0, 1),
    st.integers(1, 10_000),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_lies_between_its_jitter_and_its_limit(
    backoff: str, first: float, limit: float | None, jitter: float, attempt: int, chance: float
) -> None:
    policy = Retry(attempts=20_000, backoff=backoff, delay=first, max_delay=limit, jitter=jitter)  # type: ignore[arg-type]
    full = delay(policy, attempt, Fault("error"), 0.0)
    least = delay(policy, attempt, Fault("error"), 1.0)
    found = delay(policy, attempt, Fault("error"), chance)
    assert least <= found <= full
    assert limit is None or full <= round(limit * SECOND)
    assert least >= (1 - jitter) * full * (1 - 1e-9) - 2


@for_all(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["a", "b"]), st.sampled_from([(), ("a",)]))
def test_a_try_is_followed_by_another_only_below_the_limit_and_for_the_kinds_named(
    attempts: int, attempt: int, kind: str, on: tuple[str, ...]
) -> None:
    again = may_retry(Retry(attempts=attempts, on=on), attempt, Fault(kind))
    assert again == (attempt < attempts and (not on or kind in on))


def test_a_busy_service_that_asks_for_more_than_the_longest_delay_has_failed() -> None:
    busy = Fault("rate_limit", code="HTTP_429", retry_after=86400.0)
    assert asked_to_wait(busy, 0, NOON, 1.0) is None
    assert asked_to_wait(structs.replace(busy, retry_after=1.0), 0, NOON, 1.0) == NOON + SECOND
    assert tried(delay=0.1, max_delay=1.0).when(failed("a")).commands[0].longest_wait == 1.0
    assert tried(delay=0.1).when(failed("a")).commands[0].longest_wait is None


def test_a_busy_service_is_waited_for_for_an_hour_in_all() -> None:
    busy = Fault("rate_limit", code="HTTP_429", retry_after=60.0)
    hour, minute = 3600 * SECOND, 60 * SECOND
    assert asked_to_wait(busy, 0, NOON) == NOON + minute
    assert asked_to_wait(busy, NOON, NOON + hour - minute) == NOON + hour
    assert asked_to_wait(busy, NOON, NOON + hour - minute + 1) is None
    for other in (
        Fault("rate_limit", code="HTTP_429"),
        Fault("server_error", code="HTTP_500", retry_after=1.0),
        Fault("error", retry_after=1.0),
    ):
        assert asked_to_wait(other, 0, NOON) is None
