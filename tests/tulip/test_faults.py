"""Each fault of docs/faults.md: what the client gets, that the next request is served, and what the
metrics page says."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_FAILURE
from hotbed.tulip.testing import FakeEngine, OutOfMemoryError, expected_rows
from hotbed.wire.client import TulipClient
from tests.tulip.conftest import WAIT_S, Running, StartTulip
from tests.tulip.scraping import FAILED, free_port, items, scrape

SERVING = health_pb2.HealthCheckResponse.SERVING


def poison(engine: FakeEngine) -> None:
    engine.poison[666] = ValueError("a bug in the model")


def not_finite(engine: FakeEngine) -> None:
    engine.non_finite.add(666)


def little_memory(engine: FakeEngine) -> None:
    engine.memory_tokens = 20


@pytest.mark.parametrize(
    ("arrange", "bad", "code", "failed_steps"),
    [
        (poison, [666, 1], ErrorCode.INTERNAL, 1),
        (not_finite, [666, 1], ErrorCode.INTERNAL, 0),
        (little_memory, [1] * 21, ErrorCode.OVERLOADED, 1),
    ],
)
async def test_a_bad_sequence_fails_alone_and_is_counted(
    start_tulip: StartTulip,
    arrange: Callable[[FakeEngine], None],
    bad: list[int],
    code: ErrorCode,
    failed_steps: int,
) -> None:
    port = free_port()
    tulip = await start_tulip(metrics_port=port)
    arrange(tulip.engine)
    before = await scrape(port)
    async with TulipClient(tulip.address) as client:
        with pytest.raises(HotbedError) as caught:
            await client.embed([bad], timeout_s=WAIT_S)
        assert caught.value.code is code
        assert caught.value.param == "input[0]"
        assert (caught.value.retry_after_s is not None) == (code is ErrorCode.OVERLOADED)
        # Healthy at once: nothing was started anew.
        embedding = await client.embed([[1, 2]], timeout_s=WAIT_S)
        np.testing.assert_array_equal(embedding.rows, expected_rows([[1, 2]]))
    assert await tulip.health() == SERVING
    after = await scrape(port)
    assert after[items(code.value)] - before[items(code.value)] == 1
    assert after[items("ok")] - before[items("ok")] == 1
    assert after[FAILED] - before[FAILED] == failed_steps


async def test_out_of_memory_in_company_costs_the_client_nothing(start_tulip: StartTulip) -> None:
    port = free_port()
    tulip = await start_tulip(metrics_port=port)
    tulip.engine.fail_next(OutOfMemoryError("the whole step"))
    tulip.engine.fail_next(OutOfMemoryError("and its first half"))
    rows = await tulip.embed([[1], [2], [3], [4]])
    assert rows.count == 4
    page = await scrape(port)
    assert page[FAILED] == 2
    assert page[items("overloaded")] == 0


async def end(tulip: Running) -> int:
    async with asyncio.timeout(WAIT_S):
        return await asyncio.shield(tulip.exit_code)


@pytest.mark.parametrize("fault", ["death", "hang"])
async def test_an_engine_that_is_gone_answers_everybody_and_ends_the_process(
    start_tulip: StartTulip, fault: str
) -> None:
    port = free_port()
    tulip = await start_tulip(step_timeout_s=0.5, metrics_port=port)
    tulip.engine.hold()
    waiting = [asyncio.ensure_future(tulip.embed([[n]])) for n in range(20)]
    await tulip.begun(1)
    if fault == "death":
        tulip.engine.die()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    codes = {getattr(answer, "code", lambda: None)() for answer in answers}
    assert {code.name for code in codes} == {"UNAVAILABLE"}
    assert await end(tulip) == EXIT_FAILURE
    # The page goes with the process: a scrape that fails is what an alert sees.
    with pytest.raises(urllib.error.URLError):
        await scrape(port)


async def test_a_drain_counts_what_it_refuses_while_its_page_is_still_there(
    start_tulip: StartTulip,
) -> None:
    port = free_port()
    tulip = await start_tulip(metrics_port=port)
    tulip.engine.hold()
    running = asyncio.ensure_future(tulip.embed([[1]]))
    await tulip.begun(1)
    tulip.stop.set()
    async with asyncio.timeout(WAIT_S):
        while await tulip.health() == SERVING:
            await asyncio.sleep(0.01)
    async with TulipClient(tulip.address) as client:
        with pytest.raises(HotbedError) as caught:
            await client.embed([[2]], timeout_s=WAIT_S)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    page = await scrape(port)
    assert page[items("unavailable")] == 1
    tulip.engine.release()
    assert (await running).count == 1
    assert await end(tulip) == 0


async def test_a_full_disk_under_the_log_does_not_stop_the_service(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 's'}"
    command = [sys.executable, "-m", "hotbed.tulip.testing", f"--listen={address}",
               "--faults=error=1"]  # fmt: skip
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, stdout=full, stderr=full)
    try:
        async with TulipClient(address) as client:
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(HotbedError):
                        await client.info(timeout_s=1)
                        break
                    await asyncio.sleep(0.05)
            # Steps of several sequences fail, which is logged each time.
            for n in range(20):
                embedding = await client.embed([[n], [n + 1]], timeout_s=WAIT_S)
                np.testing.assert_array_equal(embedding.rows, expected_rows([[n], [n + 1]]))
        assert process.poll() is None
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
