"""Templates: expressions in texts, evaluated within limits; they can be analysed without being evaluated."""

from typing import TYPE_CHECKING, Any

from refold.templates.text import EmbeddedValue, TemplateProblem, Use, paths_of, problem_of, uses_of

if TYPE_CHECKING:
    from refold.templates.language import Templates

__all__ = ["EmbeddedValue", "TemplateProblem", "Templates", "Use", "paths_of", "problem_of", "uses_of"]


def __getattr__(name: str) -> Any:
    """Load the evaluator when it is first needed."""
    if name == "Templates":
        from refold.templates.language import Templates

        return Templates
    raise AttributeError(f"module 'refold.templates' has no attribute {name!r}")
