"""The tool `artifact`: files in one folder that no path leads out of, and what references stand for."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import open_engine
from refold.core import codec
from refold.errors import NotFound, ToolFailed
from refold.plan import Plan, Step
from refold.settings import Settings
from refold.tools.artifact.tool import ArtifactTool
from tests.tools.calls import call, fault_of, one_step


async def no_blob(run: str, hash: str) -> bytes:
    raise NotFound(f"{run} has no {hash}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Beside it and within it stands what no path may reach."""
    (tmp_path / "secret.txt").write_text("secret")
    inside = tmp_path / "artifacts"
    inside.mkdir()
    (inside / "out").symlink_to(tmp_path)
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    return inside


@pytest.fixture
def artifact(folder: Path) -> ArtifactTool:
    return ArtifactTool(str(folder), no_blob)


def put(uri: str, data: Any, **more: Any) -> Any:
    return call(None, {"action": "put", "uri": uri, "data": data, **more})


def get(ref: Any, **more: Any) -> Any:
    return call(None, {"ref": ref, **more})


@pytest.mark.parametrize(
    ("uri", "data", "form", "stored", "kind"),
    [
        ("a.json", {"ü": [1, None]}, None, '{"ü":[1,null]}'.encode(), "application/json"),
        ("a.json", "text", None, b'"text"', "application/json"),
        ("deep/down/a.txt", "grün\n", None, "grün\n".encode(), "text/plain; charset=utf-8"),
        ("a b&c%20.bin", "iVBORw==", "base64", b"\x89PNG", "application/octet-stream"),
        ("list", [1, 2], "json", b"[1,2]", "application/json"),
    ],
)
async def test_what_is_put_comes_back_by_its_reference(
    artifact: ArtifactTool, uri: str, data: Any, form: str | None, stored: bytes, kind: str
) -> None:
    ref = await artifact(put(uri, data, format=form))
    assert Path(artifact.folder, uri).read_bytes() == stored
    assert (ref["kind"], ref["store"], ref["uri"]) == ("result_ref", "file", uri)
    assert ref["meta"] == {"content_type": kind, "bytes": len(stored), "sha256": hashlib.sha256(stored).hexdigest()}
    codec.check_value(ref)
    for given in (ref, ref["ref"]):
        assert await artifact(get(given, format=form)) == data
    assert await artifact(call(None, {"action": "get", "uri": uri, "format": form})) == data
    for name in ("ref", "result_ref"):
        assert await artifact(call(None, {"format": form}, {name: ref})) == data


async def test_a_file_is_replaced_as_a_whole(
    artifact: ArtifactTool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await artifact(put("a.txt", "before"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    fault = await fault_of(artifact, put("a.txt", "after"))
    assert (fault.kind, fault.retryable) == ("storage_quota", True)
    assert (folder / "a.txt").read_text() == "before"
    assert sorted(each.name for each in folder.iterdir()) == ["a.txt", "link.txt", "out"]


async def test_files_and_folders_are_for_the_owner_alone(artifact: ArtifactTool, folder: Path) -> None:
    await artifact(put("new/a.txt", "x"))
    assert (folder / "new/a.txt").stat().st_mode & 0o777 == 0o600
    assert (folder / "new").stat().st_mode & 0o777 == 0o700


async def test_files_are_listed_with_their_references(artifact: ArtifactTool) -> None:
    for uri in ("b.txt", "sub/a.txt", "sub/c d.json"):
        await artifact(put(uri, "12345"))
    listed = (await artifact(call(None, {"action": "list"})))["files"]
    assert [each["uri"] for each in listed] == ["b.txt", "sub/a.txt", "sub/c d.json"], "and no link that leads out"
    assert listed[2] == {"uri": "sub/c d.json", "ref": "refold://artifact/sub/c%20d.json", "bytes": 7}
    below = (await artifact(call(None, {"action": "list", "uri": "sub"})))["files"]
    assert [each["uri"] for each in below] == ["sub/a.txt", "sub/c d.json"]
    assert (await artifact(call(None, {"action": "list", "uri": "nowhere"}))) == {"files": []}


@pytest.mark.parametrize(
    "ref",
    [
        "nothing.json",
        "refold://artifact/nothing.json",
        f"noetl://execution/r1/result/a/{'0' * 64}",
        f"refold://execution/r1/result/a/{'0' * 64}",
        {"kind": "result_ref", "ref": f"noetl://execution/r1/result/a/{'0' * 64}"},
    ],
)
async def test_what_is_not_there_may_come_yet(artifact: ArtifactTool, ref: Any) -> None:
    fault = await fault_of(artifact, get(ref))
    assert (fault.kind, fault.code, fault.retryable) == ("missing_reference", "REFERENCE_NOT_AVAILABLE", True)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "artifact needs `ref` or `uri` to know what to get"),
        ({"ref": 5}, "artifact needs `ref` or `uri` to know what to get"),
        ({"ref": {"kind": "other"}}, "artifact needs `ref` or `uri` to know what to get"),
        ({"action": "put", "uri": "a"}, "`put` needs `uri` and `data`"),
        ({"action": "put", "data": "a"}, "`put` needs `uri` and `data`"),
        ({"action": "put", "uri": "a", "data": 5, "format": "text"}, "`data` is written as text and must be text"),
        ({"action": "put", "uri": "a", "data": "%", "format": "base64"}, "`data` is not base64"),
        ({"action": "put", "uri": "a", "data": "\ud800"}, "`data` is not text"),
        ({"action": "drop"}, "`action` must be one of get, put, list"),
    ],
)
async def test_what_cannot_be_meant_is_refused(artifact: ArtifactTool, config: dict[str, Any], why: str) -> None:
    fault = await fault_of(artifact, call(None, config))
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)
    assert fault.message.startswith(why)


async def test_a_file_of_another_form_or_that_is_too_large_is_a_failure(artifact: ArtifactTool, folder: Path) -> None:
    (folder / "a.json").write_bytes(b"{")
    (folder / "a.txt").write_bytes(b"\xff")
    (folder / "large.txt").write_bytes(b"x" * 101)
    for uri in ("a.json", "a.txt"):
        assert (await fault_of(artifact, get(uri))).kind == "parse"
    fault = await fault_of(artifact, get("large.txt", max_bytes=100))
    assert (fault.kind, fault.retryable) == ("too_large", False)
    assert len(await artifact(get("large.txt", max_bytes=101))) == 101


UPS = (
    "..",
    "../..",
    "./..",
    "x/../..",
    "..//..",
    ".../..",
    "out",
    "out/..",
    "%2e%2e",
    "..%2f..",
    "..\\..",
    "\uff0e\uff0e",
)
ENDS = ("secret.txt", "etc/passwd", "./secret.txt", "secret.txt/", "artifacts/../secret.txt", "", "secret.txt\0.json")


def traversals() -> Iterator[str]:
    for up, end in itertools.product(UPS, ENDS):
        yield f"{up}/{end}"
        yield f"./{up}//{end}"
        yield f"refold://artifact/{up}/{end}"
        yield f"refold://artifact/{up.replace('.', '%2E')}%2F{end}"
    yield from ("/etc/passwd", "//etc/passwd", "/", "", ".", "..", "~/x", "~root/.bashrc", "$HOME/x", "\0", "a\0b")
    yield from ("file:///etc/passwd", "refold:///etc/passwd", "refold://artifact//etc/passwd", "link.txt", "./link.txt")
    yield from (
        "/proc/self/environ",
        "/dev/stdin",
        "C:\\x",
        "\\\\host\\x",
        "noetl://artifact/../secret.txt",
        "a" * 5000,
    )


async def test_300_strings_that_try_to_leave_the_folder_find_no_file(artifact: ArtifactTool, tmp_path: Path) -> None:
    tried = list(dict.fromkeys(traversals()))
    assert len(tried) >= 300
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir() if path.name != "artifacts"}
    for each in tried:
        fault = await fault_of(artifact, get(each))
        assert fault.kind in ("missing_reference", "storage_access"), each
        assert "secret\n" not in fault.message
    for each in tried:
        try:
            ref = await artifact(put(each, "mine"))
        except ToolFailed as error:
            assert error.fault.kind in ("storage_access", "invalid_settings"), each
        else:
            path = tmp_path / "artifacts" / ref["uri"]
            assert path.resolve().is_relative_to(tmp_path / "artifacts"), each
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir() if path.name != "artifacts"} == before
    assert (tmp_path / "secret.txt").read_text() == "secret"
    for each in ("..", "out", "/", "../..", "out/.."):
        assert (await fault_of(artifact, call(None, {"action": "list", "uri": each}))).kind == "storage_access"


async def test_a_large_result_of_another_run_is_read_by_its_reference(tmp_path: Path) -> None:
    value = {"rows": ["x" * 1000] * 100}
    boxed = codec.box(value)
    assert boxed is not None
    async with open_engine(db=tmp_path / "runs.db") as opened:
        run = (await opened.start(Plan(name="p", steps=(Step(name="big", input=value),)))).id
        assert (await opened.wait(run)).result == value
        for scheme in ("noetl", "refold"):
            ref = f"{scheme}://execution/{run}/result/big/{boxed[0].hash}"
            assert await opened.run(one_step("artifact", None, {"ref": {"kind": "result_ref", "ref": ref}})) == value


async def test_the_folder_is_beside_the_database_unless_a_setting_says_otherwise(tmp_path: Path) -> None:
    plan = one_step("artifact", None, {"action": "put", "uri": "a.txt", "data": "here"})
    async with open_engine(db=tmp_path / "runs.db") as opened:
        await opened.run(plan)
    assert (tmp_path / "runs.db-artifacts/a.txt").read_text() == "here"
    async with open_engine(settings=Settings(artifacts=str(tmp_path / "mine"))) as opened:
        await opened.run(plan)
    assert (tmp_path / "mine/a.txt").read_text() == "here"


async def test_many_that_put_the_same_file_leave_one_of_theirs(artifact: ArtifactTool, folder: Path) -> None:
    values = [{"n": n, "text": "x" * 10_000} for n in range(20)]
    await asyncio.gather(*(artifact(put("same.json", value)) for value in values))
    assert msgspec.json.decode((folder / "same.json").read_bytes()) in values
    assert sorted(each.name for each in folder.iterdir()) == ["link.txt", "out", "same.json"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777], ids=oct)
async def test_every_folder_that_is_made_for_artifacts_is_for_us_alone_whatever_the_umask(
    mask: int, tmp_path: Path
) -> None:
    root = tmp_path / ".refold" / "artifacts"
    before = os.umask(mask)
    try:
        await ArtifactTool(str(root), no_blob)(put("deep/down/a.txt", "x"))
    finally:
        os.umask(before)
    made = [root.parent, root, root / "deep", root / "deep" / "down"]
    assert [oct(each.stat().st_mode & 0o777) for each in made] == 4 * ["0o700"]
