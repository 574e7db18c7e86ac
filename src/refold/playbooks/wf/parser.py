"""Reads the words of a `.wf` file by its grammar, into a tree of nodes. One word ahead is enough, for pairs two."""

from collections.abc import Callable
from typing import NoReturn

from refold.names import did_you_mean
from refold.playbooks.wf.keys import Keys, Report, gate_table, read_pairs
from refold.playbooks.wf.nodes import (
    Block,
    Call,
    ChildCall,
    Do,
    File,
    Foreach,
    Gate,
    Input,
    ListValue,
    Loop,
    MapValue,
    Node,
    Pair,
    Parallel,
    Scalar,
    Script,
    Test,
    Value,
)
from refold.playbooks.wf.tokens import BROKEN, END, KEYWORDS, NAME, NUMBER, SPAN, TEXT, Token

NOT_NAMES = frozenset({"meta", "do"})
KEYS = frozenset({"required", "default", "description", "if", "workflow", "inputs"})  # keywords that may be keys
AGENTS = frozenset({"required", "default", "description"})  # keywords that may be agents
MODIFIERS = frozenset({"required", "boolean", "default", "description"})
NODES = ("call", "if", "unless", "while", "do", "parallel", "gate", "always", "script", "foreach")
DEEPEST = 100  # blocks in blocks, and values in values


class ParsingStopped(Exception):
    """The reading ends at this token, which cannot stand where it does."""

    def __init__(self, token: Token, message: str, hint: str, code: str = "syntax") -> None:
        self.token, self.message, self.hint, self.code = token, message, hint, code
        super().__init__(message)


class Parser:
    def __init__(self, tokens: list[Token], report: Report) -> None:
        self._tokens, self._report = tokens, report
        self._at = 0
        self._depth = 0
        self.token = tokens[0]
        self._nodes: dict[str, Callable[[], Node]] = {
            "call": self._call,
            "if": self._test,
            "unless": self._test,
            "while": self._while,
            "do": self._do,
            "parallel": self._parallel,
            "gate": self._gate,
            "always": self._always,
            "script": self._script,
            "foreach": self._foreach,
        }

    def file(self) -> File:
        self._word("workflow")
        file = File(self._name("the name of the workflow").text, {}, [], [], [])
        self._mark("{")
        meta: list[Pair] = []
        start = self.token
        while self.token.kind != "}":
            word = self.token
            if word.kind == NAME and word.text == "meta":
                self._step()
                start = word if not meta else start
                meta += self._block_of_pairs()
            elif word.kind == NAME and word.text == "inputs":
                self._step()
                self._inputs(file)
            elif word.kind == NAME and word.text == "always":
                self._step()
                file.finally_at = file.finally_at or word.at
                file.finally_body += self._body()
            else:
                file.body.append(self._node("`meta`, `inputs`, `always` or a node"))
        self._step()
        if self.token.kind != END:
            self._stop("nothing may stand behind the workflow", "a file has one workflow", "trailing-text")
        read = read_pairs(meta, "meta", "meta", start.at, start.end, self._report)
        file.meta = read.meant
        trigger = read.values.get("trigger")
        if trigger is not None and read.meant.get("trigger", "manual") != "manual":
            message = "`trigger` has no effect here: runs are started by `refold run`"
            self._report("no-effect", message, trigger.at, trigger.end, "leave it out", severity="warning")
        return file

    def _step(self) -> Token:
        token = self.token
        if token.kind != END:
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def _stop(self, message: str, hint: str = "", code: str = "syntax", token: Token | None = None) -> NoReturn:
        token = token or self.token
        if self.token.kind == BROKEN:
            token, code = self.token, self.token.text
        raise ParsingStopped(token, message, hint, code)

    def _shown(self) -> str:
        token = self.token
        if token.kind == END:
            return "the file ends"
        return "here is a text" if token.kind == TEXT else f"here is `{token.text}`"

    def _expected(self, what: str, hint: str = "") -> NoReturn:
        self._stop(f"{what} is expected, and {self._shown()}", hint)

    def _mark(self, mark: str, hint: str = "") -> Token:
        if self.token.kind != mark:
            self._expected(f"`{mark}`", hint)
        return self._step()

    def _word(self, word: str) -> Token:
        if self.token.kind != NAME or self.token.text != word:
            self._expected(f"`{word}`", "a file is `workflow NAME { … }`" if word == "workflow" else "")
        return self._step()

    def _name(self, what: str, hint: str = "") -> Scalar:
        token = self.token
        if token.kind != NAME or token.text in NOT_NAMES:
            self._expected(what, hint)
        self._step()
        return Scalar(token.text, token.at, token.end)

    def _body(self) -> list[Node]:
        self._mark("{")
        nodes = []
        while self.token.kind != "}":
            nodes.append(self._node("a node or `}`"))
        self._step()
        return nodes

    def _node(self, expected: str) -> Node:
        word = self.token
        read = self._nodes.get(word.text) if word.kind == NAME else None
        if read is None:
            self._expected(expected, self._hint_for_node(word))
        self._depth += 1
        if self._depth > DEEPEST:
            self._stop(f"blocks stand in each other more than {DEEPEST} deep", "put the inner ones into another file")
        node = read()
        self._depth -= 1
        return node

    def _hint_for_node(self, word: Token) -> str:
        following = self._tokens[self._at + 1].kind if word.kind not in (END, BROKEN) else END
        if word.kind == NAME and following == "{":
            return f"a map is `{word.text} = {{ … }}`; a node is one of {', '.join(NODES)}"
        if word.kind == NAME and following == "=":
            return "a key stands before the nodes of its block, and `if` and `unless` have none"
        if word.kind == ",":
            return "a comma may stand behind a pair only"
        return did_you_mean(word.text, NODES) if word.kind == NAME else f"a node is one of {', '.join(NODES)}"

    def _pairs(self) -> list[Pair]:
        """Read pairs as long as a key and `=` follow."""
        pairs: list[Pair] = []
        tokens = self._tokens
        while True:
            key = self.token
            if key.kind != NAME or tokens[self._at + 1].kind != "=" or (key.text in KEYWORDS and key.text not in KEYS):
                return pairs
            self._at += 2
            self.token = tokens[self._at]
            pairs.append(Pair(key.text, key.at, self._value()))
            if self.token.kind == ",":
                self._step()

    def _block_of_pairs(self) -> list[Pair]:
        self._mark("{")
        pairs = self._pairs()
        self._end_of_pairs()
        return pairs

    def _end_of_pairs(self) -> Token:
        if self.token.kind != "}":
            following = self._tokens[self._at + 1].kind if self.token.kind not in (END, BROKEN) else END
            hint = f"a map is `{self.token.text} = {{ … }}`" if following == "{" else "a pair is `key = value`"
            self._expected("a pair or `}`", hint)
        return self._step()

    def _value(self) -> Value:
        token = self.token
        if token.kind == TEXT:
            self._step()
            return Scalar(token.text, token.at, token.end, quoted=True)
        if token.kind in (NUMBER, SPAN):
            self._step()
            return Scalar(str(int(token.text)) if token.kind == NUMBER else token.text, token.at, token.end)
        if token.kind == NAME and token.text not in NOT_NAMES:
            self._step()
            if self.token.kind == "." and token.text not in KEYWORDS:
                self._step()
                part = self._name("the part behind the dot")
                return Scalar(f"{token.text}.{part.text}", token.at, part.end)
            return Scalar(token.text, token.at, token.end)
        if token.kind in ("[", "{"):
            self._depth += 1
            if self._depth > DEEPEST:
                self._stop(f"values stand in each other more than {DEEPEST} deep")
            value = self._list() if token.kind == "[" else self._map()
            self._depth -= 1
            return value
        return self._expected("a value", "a value is a text, a number, a name, `[ … ]` or `{ … }`")

    def _list(self) -> ListValue:
        start, items = self._step(), []
        while self.token.kind != "]":
            items.append(self._value())
            if self.token.kind == ",":
                self._step()
        return ListValue(tuple(items), start.at, self._step().end)

    def _map(self) -> MapValue:
        start = self._step()
        pairs = self._pairs()
        return MapValue(tuple(pairs), start.at, self._end_of_pairs().end)

    def _inputs(self, file: File) -> None:
        self._mark("{")
        while self.token.kind != "}":
            name = self._name("the name of an input or `}`")
            boolean = required = False
            texts: dict[str, str] = {}
            while self.token.kind == NAME and self.token.text in MODIFIERS:
                word = self._step()
                boolean, required = boolean or word.text == "boolean", required or word.text == "required"
                if word.text not in ("default", "description"):
                    continue
                self._mark("=")
                value = self._value()
                if not isinstance(value, Scalar):
                    message = f"`{word.text}` has one value"
                    self._report("wrong-type", message, value.at, value.end, f'write `{word.text} = "…"`')
                elif word.text in texts:
                    message = f"`{word.text}` stands here twice"
                    self._report("duplicate-key", message, word.at, word.end, "leave one of them out")
                else:
                    texts[word.text] = value.text
            if any(each.name.text == name.text for each in file.inputs):
                message = f"the input `{name.text}` is declared twice"
                self._report("duplicate-key", message, name.at, name.end, "leave one of them out")
                continue
            default = texts.get("default", "false" if boolean else None)
            needed = not boolean and default is None
            file.inputs.append(Input(name, boolean, needed, default, texts.get("description", "")))
        self._step()

    def _read(self, pairs: list[Pair], table: str, what: str, word: Token) -> Keys:
        return read_pairs(pairs, table, what, word.at, word.end, self._report)

    def _call(self) -> Node:
        word = self._step()
        if self.token.kind == NAME and self.token.text == "workflow":
            return self._child(word)
        return self._agent(word, "call")

    def _agent(self, word: Token, table: str) -> Call:
        token = self.token
        fits = token.kind == TEXT or (token.kind == NAME and (token.text not in KEYWORDS or token.text in AGENTS))
        if not fits:
            self._expected("the name of an agent, or its path in quotes")
        self._step()
        agent = Scalar(token.text, token.at, token.end, quoted=token.kind == TEXT)
        pairs = self._block_of_pairs() if self.token.kind == "{" else []
        keys = self._read(pairs, table, "call", word)
        return Call(word.at, word.end, keys.meant, keys.values, agent)

    def _child(self, word: Token) -> ChildCall:
        self._step()
        name = self._name("the name of a workflow")
        pairs: list[Pair] = []
        if self.token.kind == "{":
            self._step()
            pairs += self._pairs()
            if self.token.kind == NAME and self.token.text == "inputs" and self._tokens[self._at + 1].kind == "{":
                key = self._step()
                start = self.token
                given = self._block_of_pairs()
                end = self._tokens[self._at - 1].end
                pairs += [Pair("inputs", key.at, MapValue(tuple(given), start.at, end)), *self._pairs()]
            self._end_of_pairs()
        keys = self._read(pairs, "call workflow", "call workflow", word)
        return ChildCall(word.at, word.end, keys.meant, keys.values, name)

    def _test(self) -> Test:
        word = self._step()
        condition = self._condition(bare=True)
        body = self._body()
        otherwise: list[Node] = []
        if self.token.kind == NAME and self.token.text == "else":
            self._step()
            otherwise = self._body()
        return Test(word.at, word.end, {}, {}, word.text, condition, body, otherwise)

    def _condition(self, bare: bool) -> Scalar:
        token = self.token
        step = self._name("a condition")
        if self.token.kind != ".":
            if not bare:
                self._stop("a loop asks for a marker, and this is no `step.marker`", "write `STEP.MARKER`", token=token)
            return step
        self._step()
        marker = self._name("the name of a marker")
        return Scalar(f"{step.text}.{marker.text}", step.at, marker.end)

    def _passes(self) -> tuple[list[Pair], list[Node]]:
        self._mark("{")
        pairs, nodes = self._pairs(), []
        while self.token.kind != "}":
            nodes.append(self._node("a node or `}`"))
        self._step()
        return pairs, nodes

    def _while(self) -> Loop:
        word = self._step()
        condition = self._condition(bare=False)
        pairs, body = self._passes()
        keys = self._read(pairs, "loop", "while", word)
        return Loop(word.at, word.end, keys.meant, keys.values, "while", condition, body)

    def _do(self) -> Node:
        word = self._step()
        if self.token.kind == NAME:
            self._stop("`do` is followed by `{`", "write `do { … } while STEP.MARKER`")
        pairs, body = self._passes()
        if self.token.kind == NAME and self.token.text == "while":
            self._step()
            condition = self._condition(bare=False)
            keys = self._read(pairs, "loop", "do … while", word)
            return Loop(word.at, word.end, keys.meant, keys.values, "do", condition, body)
        keys = self._read(pairs, "do", "do", word)
        return Do(word.at, word.end, keys.meant, keys.values, body)

    def _always(self) -> Block:
        word = self._step()
        return Block(word.at, word.end, {}, {}, self._body())

    def _parallel(self) -> Parallel:
        word = self._step()
        self._mark("{")
        pairs, calls = self._pairs(), []
        while self.token.kind != "}":
            call = self.token
            if call.kind != NAME or call.text != "call":
                self._expected("`call` or `}`", "only calls of agents stand in `parallel`")
            self._step()
            if self.token.kind == NAME and self.token.text == "workflow":
                self._expected("the name of an agent", "a workflow cannot be called in `parallel`")
            calls.append(self._agent(call, "parallel call"))
        self._step()
        keys = self._read(pairs, "parallel", "parallel", word)
        if not calls:
            self._report("missing-key", "`parallel` has no calls", word.at, word.end, "add `call NAME`")
        if keys.meant.get("min_success", 0) > len(calls):
            value = keys.values["min_success"]
            message = f"`min_success` wants {keys.meant['min_success']} calls to go well, and there are {len(calls)}"
            self._report("bad-value", message, value.at, value.end, "lower it, or leave it out")
        return Parallel(word.at, word.end, keys.meant, keys.values, calls)

    def _gate(self) -> Gate:
        word = self._step()
        name = self._name("the name of a gate")
        keys = self._read(self._block_of_pairs(), gate_table(name.text), f"gate {name.text}", word)
        mode = keys.values.get("mode")
        if mode is not None and keys.meant.get("mode") == "review_decision" and "min_approvals" in keys.values:
            message = "`review_decision` counts no approvals, and `min_approvals` is given too"
            self._report("given-twice", message, mode.at, mode.end, "leave one of them out")
        return Gate(word.at, word.end, keys.meant, keys.values, name)

    def _script(self) -> Script:
        word = self._step()
        name = self._name("the name of a script")
        keys = self._read(self._block_of_pairs(), "script", "script", word)
        return Script(word.at, word.end, keys.meant, keys.values, name)

    def _foreach(self) -> Foreach:
        word = self._step()
        name = self._name("a name")
        keys = self._read(self._block_of_pairs(), "foreach", "foreach", word)
        policy = keys.values.get("on_child_fail")
        skips = keys.meant.get("on_child_fail") == "skip_dependents"
        if policy is not None and skips and not keys.meant.get("ordered", False):
            message = "`skip_dependents` has no effect without `ordered = true`"
            self._report("no-effect", message, policy.at, policy.end, "add `ordered = true`", severity="warning")
        return Foreach(word.at, word.end, keys.meant, keys.values, name)
