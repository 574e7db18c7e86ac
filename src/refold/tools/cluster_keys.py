"""The keys that say what a step needs of a Ray cluster."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.ports import ClusterNeeds
from refold.tool_api import ToolKey, ToolProblem, refused, seconds_of

RESOURCES = ("cpus", "gpus", "memory", "custom")
STRATEGIES = ("default", "spread")

CLUSTER_KEYS = (
    ToolKey(
        name="resources",
        type="map",
        static=True,
        about="with `isolation: ray`: `{cpus, gpus, memory, custom: {name: amount}}`, memory in bytes (one CPU)",
    ),
    ToolKey(
        name="runtime_env",
        type="map",
        static=True,
        about="with `isolation: ray`: the runtime environment, as Ray describes it",
    ),
    ToolKey(
        name="placement",
        type="any",
        static=True,
        about="with `isolation: ray`: `spread`, or a map of labels that the node must have",
    ),
    ToolKey(
        name="pending_timeout",
        type="duration",
        about="with `isolation: ray`: how long the step may wait for the cluster before the try fails (for ever)",
    ),
)
NAMES = tuple(key.name for key in CLUSTER_KEYS)


def check_cluster(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    is_ray = keys.get("isolation") == "ray"
    for name in NAMES:
        if keys.get(name) is not None and not is_ray:
            yield ToolProblem(name, f"`{name}` is for steps on Ray", "add `isolation: ray`")
    for name in ("cwd", "libs") if is_ray else ():
        if name == "cwd" and keys.get(name) is not None:
            yield ToolProblem(name, "`cwd` means nothing on another machine", "use `runtime_env: {working_dir: ...}`")
    problem = _problem(keys)
    if problem:
        yield ToolProblem(problem[0], problem[1], "write {cpus: 2, gpus: 1, memory: 4000000000, custom: {name: 1}}")


def _problem(keys: Mapping[str, Any]) -> tuple[str, str] | None:
    resources, placement = keys.get("resources"), keys.get("placement")
    if isinstance(resources, Mapping):
        unknown = [name for name in resources if name not in RESOURCES]
        if unknown:
            return "resources", f"`resources` has no {unknown[0]!r}; it has {', '.join(RESOURCES)}"
        custom = resources.get("custom") or {}
        amounts = [resources.get(name, 0) for name in RESOURCES[:3]]
        if not isinstance(custom, Mapping) or not all(map(_is_amount, [*amounts, *custom.values()])):
            return "resources", "an amount in `resources` is a number from 0 on"
    if isinstance(placement, str) and placement not in STRATEGIES:
        return "placement", f"`placement` is {placement!r}; it is `spread`, or a map of labels"
    if placement is not None and not isinstance(placement, (str, Mapping)):
        return "placement", "`placement` is `spread`, or a map of labels"
    return None


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def cluster_needs(keys: Mapping[str, Any]) -> ClusterNeeds:
    """Raises ToolFailed."""
    problem = _problem(keys)
    if problem is not None:
        raise refused(problem[1])
    resources, placement = keys.get("resources") or {}, keys.get("placement")
    pending = keys.get("pending_timeout")
    return ClusterNeeds(
        cpus=resources.get("cpus", 1),
        gpus=resources.get("gpus", 0),
        memory=int(resources.get("memory", 0)),
        custom=resources.get("custom") or {},
        runtime_env=keys.get("runtime_env") or {},
        strategy=placement if isinstance(placement, str) and placement != "default" else "",
        labels={name: str(value) for name, value in placement.items()} if isinstance(placement, Mapping) else {},
        pending_timeout=None if pending is None else seconds_of(pending, "`pending_timeout`"),
    )
