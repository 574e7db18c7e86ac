"""Compiles the Python code of a step: `return` and `await` may be at its top level, and lines keep their numbers.

It also tells code that only computes: that code cannot block, so inline it needs no thread of its own. It knows nothing
but its input, operators, and functions and methods that end soon; one loop at most goes over its data.
"""

import ast
import builtins
import inspect
import re
from collections.abc import Awaitable, Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from msgspec import Struct

END = "__end_of_step__"  # what the code gives if it comes to its end without `return`
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
RETURN = re.compile(r"^ *return\b", re.M)
ODD = ("\t", "\\\n", "yield")  # what means something else when a function is put around it

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class InvalidCode(Exception):
    """The code does not compile. Line and column count from 1; 0 means unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(f"line {line}: {message}" if line else message)


class Prepared(Struct, frozen=True):
    code: CodeType
    file: str  # as tracebacks name it
    lines: list[str]
    returns: bool  # it is the body of a function, because it has a `return`
    awaits: bool  # to run it gives a coroutine
    is_async: bool  # it awaits, or its `main` does
    sets_result: bool
    computes: bool = False  # it cannot block

    def run(self, names: dict[str, Any]) -> Any:
        """Return the value of `return`, or END, or a coroutine of these.

        Names that the code binds are left in `names`.
        """
        if self.returns:
            return FunctionType(self.code, names)()
        begun = eval(self.code, names)  # the code is the author's own, and trusted
        return _to_the_end(begun) if self.awaits else END


async def _to_the_end(begun: Awaitable[None]) -> str:
    await begun
    return END


def is_good(source: str) -> bool:
    """Whether the code certainly compiles, by a fast check. If not, `prepare` finds what is wrong, if anything is."""
    try:
        if RETURN.search(source) and not any(odd in source for odd in ODD):
            inside = source.replace("\n", "\n ")
            compile(f"async def code():\n pass\n {inside}", "<code>", "exec", dont_inherit=True)
        else:
            compile(source, "<code>", "exec", flags=FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


@lru_cache(maxsize=256)
def prepare(source: str, file: str) -> Prepared:
    """Return the compiled code. Raises InvalidCode."""
    try:
        tree = ast.parse(source, file)
        computes = only_computes(tree)
        own = list(_own(tree.body))
        returns = any(isinstance(node, ast.Return) for node in own)
        plain = _compile(_without_returns(tree) if returns else tree, file)
        awaits = bool(plain.co_flags & inspect.CO_COROUTINE)
        code = _as_function(ast.parse(source, file), file, awaits) if returns else plain
    except SyntaxError as error:
        raise InvalidCode(error.msg, error.lineno or 0, error.offset or 0) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise InvalidCode(str(error) or "the code is too deeply nested") from None
    return Prepared(
        code=code,
        file=file,
        lines=source.splitlines(keepends=True),
        returns=returns,
        awaits=awaits,
        is_async=awaits or any(isinstance(node, ast.AsyncFunctionDef) and node.name == "main" for node in own),
        sets_result=any(_binds_result(node) for node in own) or _says_global_result(tree),
        computes=computes,
    )


def required_of_main(source: str) -> list[tuple[str, int, int]]:
    """Parameters without a default, with line and column, if the result of the code is that of its `main`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    own = list(_own(tree.body))
    if any(isinstance(node, ast.Return) or _binds_result(node) for node in own) or _says_global_result(tree):
        return []
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    main = next((node for node in reversed(mains) if node.name == "main" and not node.decorator_list), None)
    if main is None:
        return []
    named = main.args
    plain = named.args[: len(named.args) - len(named.defaults)]
    keyword = [arg for arg, default in zip(named.kwonlyargs, named.kw_defaults, strict=True) if default is None]
    return [(arg.arg, arg.lineno, arg.col_offset + 1) for arg in (*plain, *keyword)]


def read_from_outside(source: str) -> list[tuple[str, int, int]]:
    """Names that the code reads and does not bind anywhere, with the first place of each; none if it may hide some."""
    if "import *" in source or "globals(" in source or "exec(" in source:
        return []
    tree = ast.parse(source, type_comments=False)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        bound |= set(_bound_by(node))
    found: dict[str, tuple[str, int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in bound and not hasattr(builtins, node.id):
            found.setdefault(node.id, (node.id, node.lineno, node.col_offset + 1))
    return list(found.values())


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case _:
            return


def _compile(tree: ast.Module, file: str) -> CodeType:
    code: CodeType = compile(tree, file, "exec", flags=FLAGS, dont_inherit=True)
    return code


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of the code's own scope, without those inside functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, Scope):
            yield from _own(ast.iter_child_nodes(node))


def _binds_result(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="result", ctx=ast.Store()) | ast.alias(asname="result"):
            return True
        case ast.alias(name="result", asname=None):
            return True
        case ast.FunctionDef(name="result") | ast.AsyncFunctionDef(name="result") | ast.ClassDef(name="result"):
            return True
        case _:
            return False


def _says_global_result(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Global) and "result" in node.names for node in ast.walk(tree))


class _OwnStatements(ast.NodeTransformer):
    """Changes statements of the code's own scope only."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


class _NoReturns(_OwnStatements):
    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value if node.value is not None else ast.Constant(None)
        return ast.copy_location(ast.Expr(value), node)


class _NoAnnotations(_OwnStatements):
    """Replaces `x: int = 1` by `x = 1`, because a name that is declared global cannot have a type."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _without_returns(tree: ast.Module) -> ast.Module:
    """Return the code without `return`, to find out whether it awaits and what else is wrong with it."""
    changed = _NoReturns().visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)


def _as_function(tree: ast.Module, file: str, awaits: bool) -> CodeType:
    """Return the code as the body of a function whose names are all global, as they are in a module."""
    tree = _NoAnnotations().visit(tree)
    head: list[ast.stmt] = [
        each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "__future__"
    ]
    end = ast.Return(ast.Name(END, ast.Load()))
    body = [*(each for each in tree.body if each not in head), end]
    local = _function(head, body, file, awaits)
    names = sorted({*local.co_varnames, *local.co_cellvars})
    if names:
        body.insert(0, ast.Global(names))
    return _function(head, body, file, awaits).replace(co_name="<module>", co_qualname="<module>")


def _function(head: list[ast.stmt], body: list[ast.stmt], file: str, awaits: bool) -> CodeType:
    wrapped = ast.parse(f"{'async ' if awaits else ''}def step(): pass").body[0]
    assert isinstance(wrapped, ast.FunctionDef | ast.AsyncFunctionDef)
    wrapped.body = body
    module = _compile(ast.fix_missing_locations(ast.Module([*head, wrapped], type_ignores=[])), file)
    return next(each for each in module.co_consts if isinstance(each, CodeType))


NODES = (
    *(ast.Module, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.If, ast.Pass, ast.Raise),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Constant, ast.Name, ast.Subscript, ast.Slice),
    *(ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.keyword),
    *(ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop, ast.arguments, ast.arg, ast.comprehension),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor),
)
LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = {
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance", "len", "list", "max"),
    *("min", "print", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    *("Exception", "ValueError", "KeyError", "TypeError", "RuntimeError"),
}
METHODS = {
    *("append", "copy", "count", "endswith", "extend", "get", "index", "items", "join", "keys", "lower", "lstrip"),
    *("pop", "removeprefix", "removesuffix", "replace", "rstrip", "setdefault", "sort", "split", "splitlines"),
    *("startswith", "strip", "title", "update", "upper", "values"),
}


def only_computes(tree: ast.Module) -> bool:
    """Whether the code certainly only computes; about other code this says nothing."""
    nodes = list(ast.walk(tree))
    return sum(isinstance(node, LOOPS) for node in nodes) <= 1 and all(map(_is_short, nodes)) and _names_are_kept(nodes)


def _is_short(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in FUNCTIONS
        case ast.Call(func=func):
            return isinstance(func, ast.Attribute)
        case ast.Attribute(attr=name):
            return name in METHODS
        case ast.FunctionDef(name="main"):
            return not node.decorator_list
        case ast.For():
            return True
        case _:
            return isinstance(node, (*NODES, *LOOPS))


def _names_are_kept(nodes: list[ast.AST]) -> bool:
    """Whether every called function is what its name says."""
    return FUNCTIONS.isdisjoint(filter(None, map(_bound, nodes)))


def _bound(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return name
        case _:
            return None
