"""Which file of src/refold imports which, read from the source: in functions, for types, and by name in a text too."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "refold"


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def module_name(file: Path) -> str:
    parts = file.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return for each module of Refold the modules of Refold that it imports."""
    modules = {module_name(file): file for file in files()}
    return {name: set(_imported(name, file, modules)) - {name} for name, file in modules.items()}


def _imported(name: str, file: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    tree = tree_of(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    logger_names = {id(text) for text in _logger_names(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            for alias in node.names:
                member = f"{origin}.{alias.name}"
                yield from (found for found in (member if member in modules else origin,) if found in modules)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in logger_names:
            target = node.value.partition(":")[0]  # `module` or `module:function`
            yield from (found for found in (target,) if "." in found and found in modules)


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join((*parts[: len(parts) - node.level + 1], *filter(None, (node.module,))))


def _logger_names(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            yield from node.args


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in number:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], number[target])
        if lowest[module] == number[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in number:
            visit(module)
    return found
