"""Templates: expressions in texts, evaluated within bounds; to look at them needs no evaluation."""

from typing import TYPE_CHECKING, Any

from refold.templates.text import Piece, TemplateProblem, Use, paths_of, problem_of, uses_of

if TYPE_CHECKING:
    from refold.templates.language import Templates

__all__ = ["Piece", "TemplateProblem", "Templates", "Use", "paths_of", "problem_of", "uses_of"]


def __getattr__(name: str) -> Any:
    """What evaluates is loaded when it is needed."""
    if name == "Templates":
        from refold.templates.language import Templates

        return Templates
    raise AttributeError(f"module 'refold.templates' has no attribute {name!r}")
