"""Types flow through the public API: two type checkers read a user's file, and one that is full of mistakes."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MYPY = ("mypy", "--strict", "--config-file", "", "--no-error-summary", "--cache-dir")
WRONG = re.compile(r"^(?:.*[\\/])?user_file\.py:(\d+)(?::\d+)?(?:: error:| - error:)", re.M)


def checked(checker: str, source: str, folder: Path) -> str:
    """What a checker says of a file in a folder of its own, as it would in a user's project."""
    (folder / "user_file.py").write_text(source, encoding="utf-8")
    if checker == "mypy":
        command = [*MYPY, str(ROOT / ".mypy_cache" / "of_users"), "user_file.py"]
    else:
        (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
        command = ["pyright", "--pythonpath", sys.executable, "user_file.py"]
    ended = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return re.sub(r"^ +", "", ended.stdout, flags=re.M)


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_users_file_passes_the_strict_mode_of_both_checkers(checker: str, tmp_path: Path) -> None:
    source = (HERE / "typed_user.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) > 100
    assert WRONG.findall(checked(checker, source, tmp_path)) == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_mistakes_are_found_on_their_lines(checker: str, tmp_path: Path) -> None:
    source = (HERE / "typed_mistakes.txt").read_text(encoding="utf-8")
    expected = [number for number, line in enumerate(source.splitlines(), 1) if line.endswith("# wrong")]
    found = sorted({int(number) for number in WRONG.findall(checked(checker, source, tmp_path))})
    assert len(expected) == 8 and found == expected


RESULTS = {"run", "result", "call", "run_child", "map"}


class Revealed(ast.NodeTransformer):
    """Asks the checker for the type of each result."""

    def visit_Await(self, node: ast.Await) -> ast.expr:
        return self._revealed(node, node.value)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._revealed(node, node)

    def _revealed(self, node: ast.expr, call: ast.expr) -> ast.expr:
        for child in ast.iter_child_nodes(call):
            self.visit(child)
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in RESULTS):
            return node
        return ast.Call(ast.Name("reveal_type"), [node], [])


def test_the_ports_of_other_engines_programs_pass_the_strict_mode_of_pyright_and_no_result_is_any(
    tmp_path: Path,
) -> None:
    for path in sorted((HERE.parent / "ports").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(source, encoding="utf-8")
        (tmp_path / f"revealed_{path.name}").write_text(
            ast.unparse(Revealed().visit(ast.parse(source))), encoding="utf-8"
        )
    (tmp_path / "wrong.py").write_text("number: int = 'text'\n", encoding="utf-8")  # it shows that files are read
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in ended.stdout.splitlines() if " - error" in line]
    assert len(errors) == 1 and "wrong.py" in errors[0], ended.stdout
    types = re.findall(r'information: Type of "(.*)" is "(?:CoroutineType\[Any, Any, )?(.*)"$', ended.stdout, re.M)
    assert len(types) > 40
    assert [(result, type) for result, type in types if re.search("Any|Unknown", type)] == []
