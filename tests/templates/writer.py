"""Templates at random, from a grammar: mostly sound, some broken, some hostile."""

import random
from collections.abc import Callable

from refold.templates.checks import CHECKS
from refold.templates.compiler import LIST_FILTERS
from refold.templates.filters import FILTERS, FUNCTIONS
from refold.templates.methods import METHODS

NAMES = (
    "n",
    "f",
    "yes",
    "nothing",
    "text",
    "list",
    "empty",
    "map",
    "rows",
    "steps",
    "input",
    "nobody",
    "large",
    "_",
    "self",
)
KEYS = ("a", "b", "c", "id", "ok", "tag", "items", "fetch", "rows", "get", "__class__", "append", "pop")
NUMBERS = ("0", "1", "2", "3", "7", "-1", "2.5", "1e3", "100", "99999", "100000", "1000000000", "18446744073709551615")
TEXTS = (
    "''",
    "'a'",
    "'x,y'",
    '"%s"',
    "'%999999d'",
    "'{0.__class__}'",
    "'{:>99999999}'",
    "'__class__'",
    "'{{ n }}'",
    "'é✔'",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or")
REMOVED = ("attr", "safe", "pprint", "escape", "random", "format_map", "center", "striptags")
CALLED = (*FUNCTIONS, "now", "debug", "cycler", "namespace", "lipsum")
UNSOUND = (
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "(",
    ")",
    "[",
    "'",
    "|",
    ".",
    "is",
    "not",
    "\\",
    "\x00",
    "✔",
    "if",
    "else",
    "=",
    "**",
)


class Writer:
    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)

    def template(self) -> str:
        """One expression, a text with several, or something that somebody has spoilt."""
        parts = [self._expression_in_braces()]
        if self.chance.random() < 0.3:
            parts = [self.chance.choice(("", " ", "u/", "\n")) + self._expression_in_braces() for _ in range(3)]
        text = "".join(parts)
        if self.chance.random() < 0.1:
            place = self.chance.randrange(len(text) + 1)
            text = text[:place] + self.chance.choice(UNSOUND) + text[place + self.chance.randrange(3) :]
        return text

    def text_with_statements(self) -> str:
        """A body of statements, mostly sound."""
        text = self._body(3)
        if self.chance.random() < 0.1:
            place = self.chance.randrange(len(text) + 1)
            text = text[:place] + self.chance.choice(UNSOUND) + text[place + self.chance.randrange(3) :]
        return text

    def _body(self, depth: int) -> str:
        return "".join(self._part(depth) for _ in range(self.chance.randrange(1, 4)))

    def _part(self, depth: int) -> str:
        chosen = self.chance.random()
        if depth <= 0 or chosen < 0.3:
            return f"{{{{ {self.expression(self.chance.randrange(3))} }}}}"
        value = self.expression(self.chance.randrange(3))
        name = self.chance.choice(NAMES)
        if chosen < 0.5:
            return f"{{% if {value} %}}{self._body(depth - 1)}{{% else %}}{self._body(depth - 1)}{{% endif %}}"
        if chosen < 0.75:
            some = self.chance.choice((f"range({self.chance.choice(NUMBERS)})", value, "rows", "list", "map.items()"))
            names = "k, v" if some.endswith(".items()") else name
            return f"{{% for {names} in {some} %}}{self._body(depth - 1)}{{{{ loop.index }}}}{{% endfor %}}"
        if chosen < 0.85:
            return f"{{% set {name} %}}{self._body(depth - 1)}{{% endset %}}"
        if chosen < 0.9:
            return f"{{% set s = namespace(a={value}) %}}{{% for i in list %}}{{% set s.a = [s.a, s] %}}{{% endfor %}}"
        return f"{{%- set {name} = {value} -%}}"

    def _expression_in_braces(self) -> str:
        if self.chance.random() < 0.01:
            return "{% for x in list %}{{ x }}{% endfor %}"
        return f"{{{{ {self.expression(self.chance.randrange(1, 6))} }}}}"

    def expression(self, depth: int) -> str:
        if depth <= 0:
            return self._leaf()
        kinds: tuple[Callable[[int], str], ...] = (
            self._binary, self._binary, self._filtered, self._filtered, self._filtered, self._path, self._path,
            self._tested, self._choice, self._list, self._map, self._method, self._call, self._unary,
        )  # fmt: skip
        return self.chance.choice(kinds)(depth - 1)

    def _leaf(self) -> str:
        return self.chance.choice((*NAMES, *NUMBERS, *TEXTS, "true", "none", "[]", "{}"))

    def _binary(self, depth: int) -> str:
        left, right = self.expression(depth), self.expression(depth)
        return f"({left}) {self.chance.choice(OPERATORS)} ({right})"

    def _filtered(self, depth: int) -> str:
        name = self.chance.choice((*FILTERS, *sorted(LIST_FILTERS), *FILTERS, *sorted(LIST_FILTERS), *REMOVED))
        arguments = [self.expression(depth - 1) for _ in range(self.chance.choice((0, 0, 1, 1, 2)))]
        if name == "map":
            arguments.insert(0, f"'{self.chance.choice((*FILTERS, *REMOVED))}'")
        elif name in ("select", "reject"):
            arguments.insert(0, f"'{self.chance.choice(tuple(CHECKS))}'")
        elif name in ("selectattr", "rejectattr", "groupby", "sort", "unique"):
            arguments = (
                [f"attribute='{self.chance.choice(KEYS)}'"]
                if name in ("sort", "unique")
                else [f"'{self.chance.choice(KEYS)}'"]
            )
        return f"({self.expression(depth)}) | {name}" + (f"({', '.join(arguments)})" if arguments else "")

    def _path(self, depth: int) -> str:
        path = self.chance.choice(NAMES)
        for _ in range(self.chance.randrange(3)):
            key = self.chance.choice(KEYS)
            path += self.chance.choice(
                (f".{key}", f"['{key}']", f"[{self.chance.randrange(-2, 4)}]", f"[{self.expression(depth - 1)}]")
            )
        return path

    def _tested(self, depth: int) -> str:
        name = self.chance.choice((*CHECKS, "safe", "sameas"))
        argument = f"({self.expression(depth - 1)})" if self.chance.random() < 0.4 else ""
        return f"({self.expression(depth)}) is {self.chance.choice(('', 'not '))}{name}{argument}"

    def _choice(self, depth: int) -> str:
        return f"{self.expression(depth)} if {self.expression(depth)} else {self.expression(depth)}"

    def _list(self, depth: int) -> str:
        return "[" + ", ".join(self.expression(depth) for _ in range(self.chance.randrange(4))) + "]"

    def _map(self, depth: int) -> str:
        pairs = (f"'{self.chance.choice(KEYS)}': {self.expression(depth)}" for _ in range(self.chance.randrange(3)))
        return "{" + ", ".join(pairs) + "}"

    def _method(self, depth: int) -> str:
        name = self.chance.choice((*METHODS, "append", "update", "pop", "format_map", "zfill", "__len__"))
        arguments = ", ".join(self.expression(depth - 1) for _ in range(self.chance.randrange(3)))
        return f"({self.expression(depth)}).{name}({arguments})"

    def _call(self, depth: int) -> str:
        arguments = ", ".join(self.expression(depth - 1) for _ in range(self.chance.randrange(3)))
        return f"{self.chance.choice(CALLED)}({arguments})"

    def _unary(self, depth: int) -> str:
        return f"{self.chance.choice(('-', 'not '))}({self.expression(depth)})"
