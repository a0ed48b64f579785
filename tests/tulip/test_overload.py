"""Three times what the engine can do: it goes on at its full rate, refuses at once, and what it
accepts is answered soon. Case: queues that grow until everything times out (goodput zero).

The engine's time is counted by itself, so a busy machine does not change what is asserted.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict

import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from hotbed.core.errors import ErrorCode
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.tulip.testing import FakeEngine, expected_rows
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_rows
from tests.tulip.conftest import ClientStream, StartTulip
from tests.tulip.scraping import QUEUE, free_port, items, scrape

ITEM_TOKENS, STEP_TOKENS, QUEUE_TOKENS = 25, 200, 800
TOKEN_S = 0.0005  # 0.1 s a full step: long beside what Python takes
ITEMS_A_SECOND = 1 / (TOKEN_S * ITEM_TOKENS)
SECONDS = 4.0


class Counting(FakeEngine):
    """Knows when it worked."""

    def __init__(self) -> None:
        super().__init__(token_s=TOKEN_S)
        self.spans: list[tuple[float, float, int]] = []

    def _run(self, call: object) -> StepResult:
        start = time.monotonic()
        result = super()._run(call)  # type: ignore[arg-type]
        self.spans.append((start, time.monotonic(), call.batch.num_tokens))  # type: ignore[attr-defined]
        return result


class Sender:
    """One stream that sends at a steady rate and notes what becomes of each item."""

    def __init__(self, stream: ClientStream, rate: float) -> None:
        self.stream, self.rate = stream, rate
        self.sent_at: dict[int, float] = {}
        self.outcomes: dict[ErrorCode | None, list[float]] = defaultdict(list)

    async def run(self) -> None:
        reading = asyncio.ensure_future(self._read())
        start = time.monotonic()
        for tag in itertools.count(1):
            due = start + tag / self.rate
            if due > start + SECONDS:
                break
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.sent_at[tag] = time.monotonic()
            await self.stream.send({tag: [[tag] * ITEM_TOKENS]}, timeout_ms=3000)
        await reading_all(self, reading)

    async def _read(self) -> None:
        while (reply := await self.stream.call.read()) and isinstance(reply, pb.StreamReply):
            for result in reply.results:
                self._note(result)

    def _note(self, result: pb.ItemResult) -> None:
        seconds = time.monotonic() - self.sent_at[result.id]
        if result.WhichOneof("result") == "error":
            self.outcomes[ErrorCode(result.error.code)].append(seconds)
            return
        batch = RaggedBatch.from_sequences([[result.id] * ITEM_TOKENS])
        np.testing.assert_array_equal(decode_rows(result.rows), expected_rows(batch))
        self.outcomes[None].append(seconds)

    @property
    def num_answers(self) -> int:
        return sum(map(len, self.outcomes.values()))


async def reading_all(sender: Sender, reading: asyncio.Future[None]) -> None:
    """Until every item sent was answered; then the stream is closed."""
    async with asyncio.timeout(20):
        while sender.num_answers < len(sender.sent_at):
            await asyncio.sleep(0.05)
        await sender.stream.call.done_writing()
        await reading


@pytest.mark.alone
async def test_at_three_times_its_capacity_it_goes_on_at_full_rate(start_tulip: StartTulip) -> None:
    engine = Counting()
    port = free_port()
    tulip = await start_tulip(
        lambda _: engine, max_step_tokens=STEP_TOKENS, max_queue_tokens=QUEUE_TOKENS,
        max_item_tokens=512, min_ahead_tokens=1, metrics_port=port,
    )  # fmt: skip
    try:
        async with asyncio.timeout(20):
            while await tulip.health() != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.01)
        flood = Sender(tulip.open_stream(), 2.8 * ITEMS_A_SECOND)
        small = Sender(tulip.open_stream(), 0.2 * ITEMS_A_SECOND)
        engine.spans.clear()
        sending = asyncio.gather(flood.run(), small.run())
        await asyncio.sleep(SECONDS / 4)
        during = []
        while not sending.done() and len(during) < 10:
            during.append((await scrape(port))[QUEUE])
            await asyncio.sleep(SECONDS / 20)
        await sending
        after = await scrape(port)
    finally:
        engine.close()

    begin, end = engine.spans[0][0], engine.spans[-1][1]
    busy_s = sum(stop - start for start, stop, _ in engine.spans)
    computed = sum(tokens for *_, tokens in engine.spans)
    served = ITEM_TOKENS * (len(flood.outcomes[None]) + len(small.outcomes[None]))
    per_token_s = busy_s / computed
    # Goodput: the engine is at work all the time, in full steps, on what somebody still wants.
    assert served == computed
    assert busy_s >= 0.9 * (end - begin)
    filled = begin + SECONDS / 4  # the queue is, by then
    full = [tokens for start, _, tokens in engine.spans[:-8] if start > filled]
    assert np.mean(full) >= 0.9 * STEP_TOKENS
    # Refusals: of the flood only, with nothing but the wire to wait for.
    assert set(flood.outcomes) == {None, ErrorCode.OVERLOADED}
    refusals = flood.outcomes[ErrorCode.OVERLOADED]
    assert len(refusals) > len(flood.outcomes[None])
    assert np.median(refusals) < STEP_TOKENS * TOKEN_S / 2
    # The page says so.
    # At some moment: on a busy machine the senders have pauses, in which the queue gets shorter.
    assert QUEUE_TOKENS / 2 < max(during) <= QUEUE_TOKENS
    assert after[QUEUE] == 0
    assert after[items("overloaded")] == len(refusals)
    # Latency: the queue and two steps; as much again for a busy machine.
    bound_s = 2 * (QUEUE_TOKENS + 2 * STEP_TOKENS) * per_token_s
    assert np.percentile(flood.outcomes[None], 99) < bound_s
    # And who sends little is served in his turn, not shut out.
    assert set(small.outcomes) == {None}
    assert np.percentile(small.outcomes[None], 90) < 4 * STEP_TOKENS * per_token_s
