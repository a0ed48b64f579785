"""The way of one request: tokenise, cut into chunks, let replicas compute, put rows in order."""

from __future__ import annotations

import functools
import hashlib
import time

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import HotbedError, invalid
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.indexes import name_bare_input
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.request import EmbedRequest, EmbedResult
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.spread import check_request_tokens, spread
from hotbed.ivy.tokenize import TokenizeStage
from hotbed.text.prompts import resolve_prompt
from hotbed.text.tokenizer import EncodeOptions


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
        if info.task != "embed":
            raise invalid("The model scores pairs; it has no embeddings: use /v1/rerank.", "model")
        _check_dimensions(request.spec.dimensions, info.dimensions)
        batch, prompt = await self._token_ids(request)
        self._check_size(batch.num_tokens)
        tokenize_s = time.perf_counter() - start
        computed = await spread(
            self._pool,
            batch,
            request.spec,
            row_width=request.spec.row_width(info.dimensions),
            deadline=deadline,
            max_chunks_per_replica=self._settings.max_chunks_per_replica,
        )
        self._count(request.num_inputs, batch.num_tokens, computed.num_chunks, tokenize_s)
        return EmbedResult(
            rows=computed.rows,
            num_tokens=batch.num_tokens,
            fingerprint=_answer_fingerprint(
                computed.fingerprint,
                self._tokenizer_fingerprint,
                prompt,
                request.spec.dimensions or info.dimensions,
                request.spec.dtype.value,
                info.normalize if request.spec.normalize is None else request.spec.normalize,
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=computed.queue_us,
            device_us=computed.device_us,
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
        check_request_tokens(num_tokens, self._settings.max_request_tokens, "input")

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


@functools.lru_cache(maxsize=256)
def _answer_fingerprint(*parts: str | int | bool) -> str:
    """Short hash over what the rows depend on besides the inputs."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
