"""POST /rerank, /score and /classify: from the HTTP request to the answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from hotbed.ivy.classify import decode_classify, encode_classify
from hotbed.ivy.embeddings import AnswerBody, answer_headers
from hotbed.ivy.http import Receive, Reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.rerank import decode_rerank, decode_score, encode_rerank, encode_score
from hotbed.ivy.score import ScorePipeline, ScoreResult
from hotbed.ivy.settings import IvySettings


class ScoreRoutes:
    """The routes' handlers.

    Args:
        pipeline: of the model.
        run: reads the body within the gateway's limits and has it answered.
        names: of the model.
        settings: of the gateway.
        metrics: of the gateway.
    """

    def __init__(
        self,
        pipeline: ScorePipeline,
        *,
        run: Callable[[dict[bytes, bytes], Receive, AnswerBody], Awaitable[Reply]],
        names: Sequence[str],
        settings: IvySettings,
        metrics: Metrics,
    ) -> None:
        self._pipeline = pipeline
        self._run = run
        self._names = names
        self._max_inputs = settings.max_inputs
        self._metrics = metrics

    async def rerank(self, headers: dict[bytes, bytes], receive: Receive) -> Reply:
        """Documents by their score."""
        return await self._run(headers, receive, self._rerank)

    async def score(self, headers: dict[bytes, bytes], receive: Receive) -> Reply:
        """A score a pair."""
        return await self._run(headers, receive, self._score)

    async def classify(self, headers: dict[bytes, bytes], receive: Receive) -> Reply:
        """A score a label, for each text."""
        return await self._run(headers, receive, self._classify)

    async def _rerank(self, body: bytes, start: float, deadline: float) -> Reply:
        request, fields = decode_rerank(body, names=self._names, max_inputs=self._max_inputs)
        result = await self._pipeline.run(request, deadline)
        return self._reply(encode_rerank(result, fields, self._names[0]), result, start)

    async def _score(self, body: bytes, start: float, deadline: float) -> Reply:
        request = decode_score(body, names=self._names, max_inputs=self._max_inputs)
        result = await self._pipeline.run(request, deadline)
        return self._reply(encode_score(result, self._names[0]), result, start)

    async def _classify(self, body: bytes, start: float, deadline: float) -> Reply:
        request = decode_classify(body, names=self._names, max_inputs=self._max_inputs)
        result = await self._pipeline.run(request, deadline)
        return self._reply(encode_classify(result, self._names[0]), result, start)

    def _reply(self, answer: bytes, result: ScoreResult, start: float) -> Reply:
        total_s = time.perf_counter() - start
        self._metrics.request_seconds.observe(total_s)
        return Reply(200, answer, answer_headers(result, total_s))
