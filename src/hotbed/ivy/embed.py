"""The way of one request: tokenise, cut into chunks, let replicas compute, put rows in order."""

from __future__ import annotations

import functools
import hashlib
import time

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.bounded import map_bounded
from hotbed.ivy.chunks import Chunk, ChunkCalls, ChunkRows
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.metrics import ModelMetrics
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.request import EmbedRequest, EmbedResult
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.tokenize import TokenizeStage
from hotbed.text.prompts import resolve_prompt
from hotbed.text.split import split
from hotbed.text.tokenizer import EncodeOptions
from hotbed.wire.errors import RETRY_AFTER_S


class EmbedPipeline:
    """Turns requests into rows. `tokenizer_fingerprint` goes into every answer's fingerprint."""

    def __init__(
        self,
        *,
        tokenize: TokenizeStage,
        tokenizer_fingerprint: str,
        prompts: Prompts,
        pool: ReplicaPool,
        settings: IvySettings,
        metrics: ModelMetrics,
    ) -> None:
        self._tokenize = tokenize
        self._tokenizer_fingerprint = tokenizer_fingerprint
        self._prompts = prompts
        self._pool = pool
        self._settings = settings
        self._metrics = metrics

    async def run(self, request: EmbedRequest, deadline: float) -> EmbedResult:
        """Rows of the request's inputs, in order.

        Args:
            request: form already checked.
            deadline: event loop time.

        Raises:
            HotbedError: INVALID_INPUT, TOO_LARGE, and what the replicas say.
        """
        try:
            return await self._run(request, deadline)
        except HotbedError as error:
            raise name_fields(error, request.names, is_single=request.is_single) from None

    async def _run(self, request: EmbedRequest, deadline: float) -> EmbedResult:
        start = time.perf_counter()
        info = self._pool.info or await self._pool.wait_for_info(deadline)
        _check_dimensions(request.spec, info.dimensions)
        batch, prompt = await self._token_ids(request)
        self._check_size(batch.num_tokens, request)
        tokenize_s = time.perf_counter() - start
        calls = ChunkCalls(
            self._pool,
            request.spec,
            row_width=request.spec.row_width(info.dimensions),
            deadline=deadline,
        )
        max_in_flight = self._settings.max_chunks_per_replica * max(1, self._pool.num_up)
        answers = await map_bounded(calls.embed, self._cut(batch), limit=max_in_flight)
        num_rows = sum(len(answer.rows) for answer in answers)
        assert num_rows == request.num_inputs, "rows and inputs differ in number: this is a bug"
        queue_us = max(answer.queue_us for answer in answers)
        self._metrics.count_work(
            num_inputs=num_rows, num_tokens=batch.num_tokens, num_chunks=len(answers)
        )
        process = self._metrics.process
        process.tokenize_seconds.observe(tokenize_s)
        process.queue_seconds.observe(queue_us / 1e6)
        process.device_seconds.observe(max(answer.device_us for answer in answers) / 1e6)
        return EmbedResult(
            rows=[answer.rows for answer in answers],
            num_tokens=batch.num_tokens,
            fingerprint=_answer_fingerprint(
                _common_fingerprint(answers),
                self._tokenizer_fingerprint,
                prompt,
                request.spec.dimensions or info.dimensions,
                request.spec.dtype.value,
                info.normalize if request.spec.normalize is None else request.spec.normalize,
                request.add_special_tokens,
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=queue_us,
            device_us=sum(answer.device_us for answer in answers),
        )

    async def _token_ids(self, request: EmbedRequest) -> tuple[RaggedBatch, str]:
        """(token ids, the prompt put before each text)."""
        if request.texts is not None:
            prompt = resolve_prompt(
                self._prompts, prompt_name=request.prompt_name, input_type=request.input_type
            )
            options = EncodeOptions(
                prefix=prompt,
                truncate=request.truncate,
                truncation_side=request.truncation_side,
                max_tokens=request.max_tokens,
                add_special_tokens=request.add_special_tokens,
            )
            return await self._tokenize.encode(request.texts, options), prompt
        assert request.token_arrays is not None, "neither texts nor ids: this is a bug"
        # Before the ids are looked at: a body can hold some ten million of them.
        self._check_size(sum(map(len, request.token_arrays)), request)
        options = EncodeOptions(
            truncate=request.truncate,
            truncation_side=request.truncation_side,
            max_tokens=request.max_tokens,
        )
        return await self._tokenize.check(request.token_arrays, options), ""

    def _check_size(self, num_tokens: int, request: EmbedRequest) -> None:
        limit, name = self._settings.max_request_tokens, "max_request_tokens"
        if request.max_request_tokens is not None and request.max_request_tokens < limit:
            limit, name = request.max_request_tokens, "of this API"
        if num_tokens > limit:
            raise HotbedError(
                ErrorCode.TOO_LARGE,
                f"The inputs have {num_tokens} tokens together; the limit is {limit} a request "
                f"({name}).",
                param="input",
            )

    def _cut(self, batch: RaggedBatch) -> list[Chunk]:
        if batch.num_sequences == 1:
            return [Chunk(0, batch)]
        max_tokens, max_sequences = self._pool.chunk_size()
        spans = split(batch.lengths, max_tokens=max_tokens, max_sequences=max_sequences)
        if len(spans) == 1:
            return [Chunk(0, batch)]
        return [Chunk(start, batch.slice(start, stop)) for start, stop in spans]


def _check_dimensions(spec: OutputSpec, native: int) -> None:
    if spec.dimensions > native:
        raise invalid(
            f"dimensions is {spec.dimensions}; this model has {native} dimensions, so 1 to "
            f"{native} can be asked for.",
            "dimensions",
        )
    if spec.dtype.is_packed and (spec.dimensions or native) % 8:
        raise invalid(
            f"dimensions is {spec.dimensions or native}; for binary rows it must divide by 8.",
            "dimensions",
        )


def _common_fingerprint(answers: list[ChunkRows]) -> str:
    """The fingerprint all chunks of a request share."""
    fingerprints = {answer.fingerprint for answer in answers}
    if len(fingerprints) > 1:
        raise HotbedError(
            ErrorCode.UNAVAILABLE,
            "The replicas changed to another model while this request ran, and rows of two models "
            "are not mixed. Send it again.",
            retry_after_s=RETRY_AFTER_S,
        )
    return fingerprints.pop()


@functools.lru_cache(maxsize=256)
def _answer_fingerprint(*parts: str | int | bool) -> str:
    """Short hash over what the rows depend on besides the inputs."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
