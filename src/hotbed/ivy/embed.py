"""The way of one request: tokenise, cut into chunks, let replicas compute, put rows in order."""

from __future__ import annotations

import functools
import hashlib
import time

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.bounded import map_bounded
from hotbed.ivy.chunks import Chunk, ChunkCalls, ChunkRows
from hotbed.ivy.indexes import name_bare_input
from hotbed.ivy.metrics import Metrics
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
        metrics: Metrics,
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
            raise name_bare_input(error) if request.is_single else error from None

    async def _run(self, request: EmbedRequest, deadline: float) -> EmbedResult:
        start = time.perf_counter()
        info = self._pool.info or await self._pool.wait_for_info(deadline)
        _check_dimensions(request.spec.dimensions, info.dimensions)
        batch, prompt = await self._token_ids(request)
        self._check_size(batch.num_tokens)
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
        self._count(num_rows, batch.num_tokens, len(answers), tokenize_s)
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
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=max(answer.queue_us for answer in answers),
            device_us=sum(answer.device_us for answer in answers),
        )

    async def _token_ids(self, request: EmbedRequest) -> tuple[RaggedBatch, str]:
        """(token ids, the prompt put before each text)."""
        truncate, side = request.truncate, request.truncation_side
        if request.texts is not None:
            prompt = resolve_prompt(
                self._prompts, prompt_name=request.prompt_name, input_type=request.input_type
            )
            options = EncodeOptions(prefix=prompt, truncate=truncate, truncation_side=side)
            return await self._tokenize.encode(request.texts, options), prompt
        assert request.token_arrays is not None, "neither texts nor ids: this is a bug"
        # Before the ids are looked at: a body can hold some ten million of them.
        self._check_size(sum(map(len, request.token_arrays)))
        options = EncodeOptions(truncate=truncate, truncation_side=side)
        return await self._tokenize.check(request.token_arrays, options), ""

    def _check_size(self, num_tokens: int) -> None:
        limit = self._settings.max_request_tokens
        if num_tokens > limit:
            raise HotbedError(
                ErrorCode.TOO_LARGE,
                f"The inputs have {num_tokens} tokens together; the limit is {limit} a request "
                "(max_request_tokens).",
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

    def _count(self, num_inputs: int, num_tokens: int, num_chunks: int, tokenize_s: float) -> None:
        self._metrics.tokenize_seconds.observe(tokenize_s)
        self._metrics.inputs.inc(num_inputs)
        self._metrics.tokens.inc(num_tokens)
        self._metrics.chunks.inc(num_chunks)


def _check_dimensions(asked: int, native: int) -> None:
    if asked > native:
        raise invalid(
            f"dimensions is {asked}; this model has {native} dimensions, so 1 to {native} can be "
            "asked for.",
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
