"""Keys that several kinds of tools share, and their checks: values in programs, and what a step needs of Ray."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from refold.ports import ClusterNeeds
from refold.tool_api import ToolKey, ToolProblem, refused, seconds_of

TEMPLATE = re.compile(r"\{\{(?!-?\s*\.)|\{%")  # `{{.Name}}` is not ours: docker and others use it


def one_of(keys: Mapping[str, Any], *names: str) -> Iterator[ToolProblem]:
    given = [name for name in names if keys.get(name) is not None]
    if not given:
        yield ToolProblem("", f"one of {listed(names)} is needed")
    for name in given[1:]:
        yield ToolProblem(name, f"`{name}` and `{given[0]}` exclude each other", "remove one of them")


def listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return ", ".join(quoted[:-1]) + " and " + quoted[-1]


# Interpreters, and the options that their program text follows.
PROGRAM_OPTIONS: Mapping[str, str] = {
    r"(?:ba|da|k|z|c|tc|a|fi)?sh": r"-\w*c\w*",
    r"python[\d.]*|pypy[\d.]*": r"-\w*c",
    r"perl|ruby": r"-\w*[eE]",
    r"node|nodejs|deno|bun": r"-e|-p|-pe|--eval|--print|eval",
    r"php|lua|Rscript": r"-r|-e|-B|-E",
    r"psql|mysql|mariadb|duckdb|clickhouse": r"-c|-e|--command(?:=.*)?|--execute(?:=.*)?|-cmd",
}
FIRST_IS_PROGRAM = r"env -S|[gmn]?awk|g?sed|jq|yq|eval|expr|bc|ssh|sqlite3|su|xargs|trap"
SPLIT = re.compile(r"(?:-\w*?S|--split-string=?)(.*)", re.S)  # `env -S` splits its text into words
OPTIONS_OF_ENV = re.compile(r"-.*|\w+=.*", re.S)


def programs_in(*keys: str) -> Callable[[Mapping[str, Any]], Iterator[ToolProblem]]:
    """Return a check that warns about values in the program text that these lists pass to an interpreter."""

    def problems(given: Mapping[str, Any]) -> Iterator[ToolProblem]:
        words: list[tuple[str, int, Any]] = []
        for key in keys:
            listed = given.get(key)
            words += [(key, item, word) for item, word in enumerate(listed)] if isinstance(listed, list) else ()
        for at, name in _program_texts([word for _, _, word in words]):
            key, item, word = words[at]
            place = first_value(word)
            assert place is not None
            message = f"a value is put into the program of `{name}`, so its content can be run"
            hint = 'pass it as an argument after the program, and read it there: "$1", sys.argv[1]'
            yield ToolProblem(key, message, hint, *place, "value-as-code", item, "warning")

    return problems


def _program_texts(words: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Yield the words that are the program text of an interpreter among them and contain values, by index and name."""
    indexes, words = _split_by_env(words)
    for at, name in _texts_of_interpreters(words):
        yield indexes[at], name


def _split_by_env(given: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """Return the words as `env -S` splits them, with the index of each before; a text with a value stays whole."""
    indexes, words = list(range(len(given))), list(given)
    env = next((at for at, word in enumerate(words) if _program_name(word) == "env"), len(words))
    for at in range(env + 1, len(words)):
        word = str(words[at])
        split = SPLIT.fullmatch(word)
        if split is not None and split[1] == "" and at + 1 < len(words):
            at, text = at + 1, str(words[at + 1])
        elif split is not None:
            text = split[1]
        elif OPTIONS_OF_ENV.fullmatch(word) or words[at - 1] in ("-u", "-C", "--unset", "--chdir"):
            continue
        else:
            break
        parts = ["env -S", words[at]] if TEMPLATE.search(text) else text.split()
        words[at : at + 1], indexes[at : at + 1] = parts, [at] * len(parts)
        break
    return indexes, words


def _program_name(word: Any) -> str:
    return word.rsplit("/", 1)[-1] if isinstance(word, str) and not TEMPLATE.search(word) else ""


def _texts_of_interpreters(words: Sequence[Any]) -> Iterator[tuple[int, str]]:
    for i, word in enumerate(words):
        name = _program_name(word)
        option = next((each for known, each in PROGRAM_OPTIONS.items() if name and re.fullmatch(known, name)), None)
        if option is None and not re.fullmatch(FIRST_IS_PROGRAM, name):
            continue
        for at, text in enumerate(words[i + 1 :], i + 1):
            is_program = option is None or re.fullmatch(option, str(words[at - 1])) or re.fullmatch(option, str(text))
            if is_program and isinstance(text, str) and TEMPLATE.search(text):
                yield at, name
            if option is not None and re.fullmatch(option, str(words[at - 1])):
                break  # the words after it are arguments
        return


def is_expression(value: Any) -> bool:
    """Whether a value is computed in the run, so that it cannot be checked before."""
    return isinstance(value, str) and "{{" in value


def first_value(text: str) -> tuple[int, int] | None:
    """Return line and column of the first template in a text, or None if it has none."""
    match = TEMPLATE.search(text)
    if match is None:
        return None
    return text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())


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
CLUSTER_NAMES = tuple(key.name for key in CLUSTER_KEYS)


def check_cluster(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    is_ray = keys.get("isolation") == "ray"
    for name in CLUSTER_NAMES:
        if keys.get(name) is not None and not is_ray:
            yield ToolProblem(name, f"`{name}` is for steps on Ray", "add `isolation: ray`")
    for name in ("cwd", "libs") if is_ray else ():
        if name == "cwd" and keys.get(name) is not None:
            yield ToolProblem(name, "`cwd` means nothing on another machine", "use `runtime_env: {working_dir: ...}`")
    problem = _cluster_problem(keys)
    if problem:
        yield ToolProblem(problem[0], problem[1], "write {cpus: 2, gpus: 1, memory: 4000000000, custom: {name: 1}}")


def _cluster_problem(keys: Mapping[str, Any]) -> tuple[str, str] | None:
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
    problem = _cluster_problem(keys)
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
