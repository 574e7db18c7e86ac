"""The context variables of callers: a body sees those of the caller that started its run in this process."""

from collections import OrderedDict
from collections.abc import Sequence
from contextvars import Context, copy_context

MOST = 10_000  # runs whose context is kept; a context may hold what its caller has long forgotten


class CallerContexts:
    """The contexts in which runs were started here, by run. A run that another process has started has none."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[str, Context] = OrderedDict()

    def keep(self, run: str) -> bool:
        """Keep the context of the caller for a run that it starts. Return whether the run had none before."""
        if run in self._contexts:
            return False
        self._put(run, copy_context())
        return True

    def started(self, births: Sequence[tuple[str, str]]) -> None:
        """Child runs have the context of their parent. Births are pairs of parent and child."""
        for parent, child in births:
            context = self._contexts.get(parent)
            if context is not None and child not in self._contexts:
                self._put(child, context)

    def of(self, run: str) -> Context | None:
        return self._contexts.get(run)

    def forget(self, run: str) -> None:
        self._contexts.pop(run, None)

    def _put(self, run: str, context: Context) -> None:
        self._contexts[run] = context
        if len(self._contexts) > MOST:
            self._contexts.popitem(last=False)
