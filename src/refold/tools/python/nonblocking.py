"""Code that only computes: it cannot block, so that inline it needs no thread of its own.

It knows nothing but its input, operators, and functions and methods that end soon; one loop at most goes over its data.
"""

import ast

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
