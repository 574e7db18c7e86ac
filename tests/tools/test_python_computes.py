"""Code that only computes is known by its text, and shares the event loop; nothing else does."""

import ast
import threading

import pytest

from refold.executors.inline import Inline
from refold.tools.python.compile import only_computes
from refold.tools.python.tool import PythonTool
from tests.tools.calls import call

COMPUTES = (
    "result = x + 1",
    "return {'n': x['rows'][0], 'rest': x['rows'][1:]}",
    "def main(x, y=2):\n    return f'{x}-{y:>3}'",
    "result = [each['n'] * 2 for each in rows if each.get('n')]",
    "total = 0\nfor each in rows:\n    total += each\nresult = round(total / len(rows), 2)",
    "if not x:\n    raise ValueError('no x')\nresult = sorted(x.items())",
    "context['usage']['tokens'] = 3\nresult = ', '.join(x.strip().split())",
    "print('hello', x)",
)
MAY_BLOCK = (
    "import time\ntime.sleep(1)",
    "result = open('x').read()",
    "while True:\n    pass",
    "result = fetch(x)",
    "result = x.fetch()",
    "result = x.fetch",
    "def main(x):\n    return main(x)",
    "def other(x):\n    return x\nresult = 1",
    "result = [a for a in x for b in a]\nresult = [a for a in x]",
    "for a in x:\n    for b in x:\n        pass",
    "result = 10 ** x",
    "result = 1 << x",
    "len = x\nresult = len(x)",
    "result = (lambda: x)()",
    "result = x['f'](1)",
    "class A:\n    pass",
    "try:\n    result = 1\nfinally:\n    pass",
    "with x:\n    pass",
    "@x\ndef main():\n    pass",
    "result = __import__('time')",
    "result = eval(x)",
    "async def main():\n    pass",
    "await x",
    "(len := x)",
    "def main(len=print):\n    return len(1)",
)


@pytest.mark.parametrize("code", COMPUTES)
def test_code_that_only_computes_is_known(code: str) -> None:
    assert only_computes(ast.parse(code))


@pytest.mark.parametrize("code", MAY_BLOCK)
def test_other_code_is_not_taken_for_pure_computation(code: str) -> None:
    assert not only_computes(ast.parse(code))


async def test_such_code_runs_where_it_is_called_and_no_thread_is_made() -> None:
    inline = Inline(1)
    python = PythonTool({"inline": inline})
    before = threading.active_count()
    assert await python(call({"code": "result = x + 1", "isolation": "inline"}, None, {"x": 1})) == 2
    assert threading.active_count() == before
    code = "import threading\nresult = threading.active_count()"
    assert await python(call({"code": code, "isolation": "inline"})) == before + 1
    libs = {"code": "result = len(x)", "isolation": "inline", "libs": {"len": {"from": "builtins", "import": "len"}}}
    assert await python(call(libs, None, {"x": "abc"})) == 3
    assert threading.active_count() == before + 1
    await inline.close()
