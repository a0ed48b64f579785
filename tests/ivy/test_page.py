"""The page at / in a real browser."""

from __future__ import annotations

import shutil

import pytest

from hotbed.tulip.testing import FakeEngine, expected_rows
from tests.ivy.harness import (
    expected_for,
    info_for,
    real_tulip,
    score_info,
    score_model,
    serving,
    settings_for,
    unix_address,
)
from tests.ivy.test_access import key_file

playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    # Transports of the browser's pipes are left to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
async def open_page():
    """Opens an address in a browser; at the end nothing must have been complained about."""
    complaints = []
    async with playwright.async_playwright() as control:
        browser = await control.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))

        def heard(message) -> None:
            # Answers that say no are part of the tests, and the browser tells of each.
            if message.type == "error" and "status of 40" not in message.text:
                complaints.append(message.text)

        page.on("console", heard)

        async def open_it(url: str):
            await page.goto(url)
            return page

        yield open_it
        await browser.close()
    assert not complaints


async def test_the_page_shows_the_replica_and_compares_texts(
    tokenizer, model, addresses, open_page
):
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        serving(settings_for(addresses[0]), model) as ivy,
    ):
        page = await open_page(ivy.url)
        await page.wait_for_selector("#replicas .dot.up")
        assert "org/tiny" in await page.inner_text("#replicas")
        assert "32 dimensions" in await page.inner_text("#replicas")
        left, right = ["the cat", "a fast dog"], ["the cat", "the house", "a fast dog"]
        await page.fill("#left", "\n".join(left))
        await page.fill("#right", "\n\n".join(right))
        await page.click("#embed button")
        await page.wait_for_selector(".heat")
        shown = await page.locator(".heat td").all_inner_texts()
        a, b = expected_for(tokenizer, left)[0], expected_for(tokenizer, right)[0]
        assert shown == [f"{value:.3f}" for value in (a @ b.T).ravel()]
        assert "tokens" in await page.inner_text("#embed-said")
        assert not await page.is_visible("#reranking")


class GraphEngine(FakeEngine):
    """Counts as an engine on a GPU does: every fourth step ran eagerly."""

    def counters(self) -> dict[str, int]:
        return {"eager": len(self.steps) // 4, "replayed": len(self.steps) - len(self.steps) // 4}


async def test_the_page_shows_batch_sizes_and_graph_hits(
    tokenizer, model, addresses, open_page, monkeypatch
):
    monkeypatch.setattr("hotbed.ivy.status._STATS_AGE_S", 0.0)
    engine = GraphEngine(info_for(tokenizer))
    async with (
        real_tulip(engine, addresses[0]),
        serving(settings_for(addresses[0]), model) as ivy,
        ivy.client() as client,
    ):
        # With the replica's own first step of one sequence: 8 steps, 2 of them eager.
        for _ in range(7):
            await client.post("/v1/embeddings", json={"input": ["the cat", "a dog"]})
        sizes = list(engine.steps)
        assert len(sizes) == 8
        page = await open_page(ivy.url)
        await page.wait_for_selector("#replicas .dot.up")
        cells = await page.locator("#replicas td.n").all_inner_texts()
        sequences, tokens = (sum(of) / 8 for of in zip(*sizes, strict=True))
        assert cells[0:3] == ["0", "0", "–"]
        assert cells[3:5] == [f"{sequences:.1f}", f"{tokens:.0f}"]
        assert cells[5].endswith(" ms")
        assert cells[6] == "75 %"
        # From the second look on there is a rate.
        rate = page.locator("#replicas td.n").nth(2)
        await playwright.expect(rate).to_have_text("0")


async def test_a_model_that_scores_ranks_documents(pairs, tmp_path, open_page):
    address = unix_address(tmp_path)
    async with (
        real_tulip(FakeEngine(score_info(pairs)), address),
        serving(settings_for(address), score_model(pairs)) as ivy,
    ):
        page = await open_page(ivy.url)
        await page.wait_for_selector("#replicas .dot.up")
        documents = ["a dog", "the cat", "a house"]
        await page.fill("#query", "the fast cat")
        await page.fill("#documents", "\n".join(documents))
        await page.click("#rerank button")
        await page.wait_for_selector(".ranked")
        scores = expected_rows(
            pairs.encode("the fast cat", documents).batch, info=score_info(pairs)
        )[:, 0]
        shown = await page.locator(".ranked td:nth-child(3)").all_inner_texts()
        assert shown == [documents[i] for i in (-scores).argsort(kind="stable")]
        assert not await page.is_visible("#similarity")


async def test_the_api_page_lists_every_route_and_tries_one(tokenizer, model, addresses, open_page):
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        serving(settings_for(addresses[0]), model) as ivy,
    ):
        page = await open_page(f"{ivy.url}/docs")
        await page.wait_for_selector("#routes section")
        listed = await page.locator("#routes h3 code").all_inner_texts()
        async with ivy.client() as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
        assert sorted(listed) == sorted(path for path in paths for _ in paths[path])
        await page.click("#send")
        await page.wait_for_selector("#answer", state="visible")
        assert (await page.inner_text("#status")).startswith("200 in ")


async def test_an_error_is_shown_where_it_happened(tokenizer, model, addresses, open_page):
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        serving(settings_for(addresses[0], max_inputs=2), model) as ivy,
    ):
        page = await open_page(ivy.url)
        await page.wait_for_selector("#replicas .dot.up")
        await page.click("#embed button")
        await page.wait_for_selector("#embed-said.error")
        assert "the limit is 2" in await page.inner_text("#embed-said")


async def test_with_keys_the_page_asks_for_one(tokenizer, model, addresses, open_page, tmp_path):
    settings = settings_for(addresses[0], api_keys_file=key_file(tmp_path, "one"))
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        serving(settings, model) as ivy,
    ):
        page = await open_page(ivy.url)
        await page.wait_for_selector("#key", state="visible")
        await page.fill("#key", "one")
        await page.wait_for_selector("#replicas .dot.up")
