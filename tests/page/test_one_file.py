"""A run in one HTML file: it opens without a server and without a network, and shows any moment of the run."""

from pathlib import Path

from msgspec import json
from playwright.async_api import Browser, Page, expect

from refold.server.offline import record_run
from refold.server.recording import LARGEST
from tests.cli.program import refold
from tests.page.conftest import WIDE
from tests.page.hostile import hostile_strings
from tests.page.scene import play
from tests.server.conftest import NS, Server

FAULTS = (
    "window.faults = []; addEventListener('securitypolicyviolation', (event) =>"
    " faults.push(`${event.violatedDirective} ${event.blockedURI} ${event.lineNumber}`))"
)


async def exported(server: Server, run: str, form: str = "html") -> bytes:
    async with server.client(await server.token()) as client:
        answer = await client.get(f"{NS}/runs/{run}/export", params={"as": form})
        assert answer.status_code == 200, answer.text
        return answer.content


def watch(page: Page, requests: list[str], errors: list[str]) -> None:
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))


async def test_the_file_opens_offline_and_shows_the_run_at_any_moment(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    scene = await play(server, tmp_path / "playbooks")
    for run, texts in (
        (scene.done, ("orders of Wednesday", "fetch", "report")),
        (scene.failed, ("invoices", "card 4242")),
    ):
        path = tmp_path / f"{run}.html"
        path.write_bytes(await exported(server, run))
        context = await browser.new_context(viewport=WIDE, offline=True)  # type: ignore[arg-type]
        await context.add_init_script(FAULTS)
        page = await context.new_page()
        requests: list[str] = []
        errors: list[str] = []
        watch(page, requests, errors)
        for address in ("", f"#/ns/default/runs/{run}?tab=history", f"#/ns/default/runs/{run}?tab=steps&at=2"):
            await page.goto(path.as_uri() + address)
            for text in texts[:1] if address else texts:
                await expect(page.locator("#main").get_by_text(text).first).to_be_visible()
        assert [each for each in requests if not each.startswith(("file:", "data:"))] == []
        assert (errors, await page.evaluate("faults")) == ([], [])
        await context.close()


async def test_hostile_texts_do_not_end_the_data_of_the_file(browser: Browser, server: Server, tmp_path: Path) -> None:
    text = "</script><script>window.hit=1</script><!--<script>" + "".join(hostile_strings())
    async with server.client(await server.token()) as client:
        run = await server.start(
            client, "greet", input={"name": text}, name="</script><img src=x onerror=window.hit=1>"
        )
        await server.until(client, run, "completed")
    path = tmp_path / "run.html"
    path.write_bytes(await exported(server, run))
    context = await browser.new_context(offline=True)
    page = await context.new_page()
    await page.goto(path.as_uri())
    await expect(page.locator("#main").get_by_text("</script><img src=x").first).to_be_visible()
    assert await page.evaluate("[window.hit, document.scripts.length]") == [None, 2]
    recorded = json.decode(await page.locator("#recording").text_content() or "")
    assert json.decode(recorded["values"]["input"]["text"])["name"] == text
    await context.close()


async def test_a_run_of_a_thousand_facts_has_a_megabyte_and_its_size_is_told_beforehand(
    server: Server, tmp_path: Path
) -> None:
    async with server.client(await server.token()) as client:
        (tmp_path / "playbooks" / "long.yaml").write_text(
            "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: long}\nworkflow:\n  - step: each\n"
            "    loop: {in: '{{ range(480) | list }}', iterator: n, max_in_flight: 1}\n"
            "    tool: {kind: noop, result: '{{ n }}'}\n"
        )
        run = await server.start(client, "long")
        shown = await server.until(client, run, "completed")
    told = json.decode(await exported(server, run, "size"))
    made = await exported(server, run)
    assert shown["head"] > 400
    assert told["left_out"] == [] and abs(told["bytes"] - len(made)) < 1000
    assert len(made) * 1000 / max(shown["head"], 1000) < 1.5e6


async def test_what_is_too_large_loses_its_values_first(server: Server) -> None:
    async with server.client(await server.token()) as client:
        run = await server.start(client, "prints")
        await server.until(client, run, "completed")
    whole = await record_run(server.service.views, run)
    assert whole.left_out == () and json.decode(whole.data)["lines"] and LARGEST == 20 * 1024 * 1024
    small = await record_run(server.service.views, run, largest=len(whole.data) // 2)
    kept = json.decode(small.data)
    assert "log lines" in small.left_out and kept["lines"] == [] and kept["frames"] and kept["facts"]
    assert len(small.data) <= len(whole.data) // 2 + 2000


def test_the_command_writes_the_page_and_the_archive_of_a_run(page_files: None, tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text(
        "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: hello}\nworkflow: [{step: a, tool: {kind: noop}}]\n"
    )
    assert refold(tmp_path, "run", "hello.yaml", "--name", "greeting").code == 0
    done = refold(tmp_path, "runs", "export", "greeting", "--html", "-o", "greeting.html")
    assert done.code == 0 and "greeting is in greeting.html" in done.err, done
    assert b'id="recording"' in (tmp_path / "greeting.html").read_bytes()
    assert refold(tmp_path, "runs", "export", "greeting", "-o", "greeting.json").code == 0
    assert json.decode((tmp_path / "greeting.json").read_bytes())["run"]
    assert refold(tmp_path, "runs", "export", "none", "--html").code == 3
