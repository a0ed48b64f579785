"""The way of one request: tokenise, cut into chunks, let replicas compute, put rows in order."""

from __future__ import annotations

import time

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import HotbedError, invalid
from hotbed.core.fingerprint import row_fingerprint
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.caller import Caller
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.metrics import ModelMetrics
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
        metrics: ModelMetrics,
    ) -> None:
        self._tokenize = tokenize
        self._tokenizer_fingerprint = tokenizer_fingerprint
        self._prompts = prompts
        self._pool = pool
        self._settings = settings
        self._metrics = metrics

    async def run(self, request: EmbedRequest, caller: Caller) -> EmbedResult:
        """Rows of the request's inputs, in order.

        Args:
            request: form already checked.
            caller: who asks.

        Raises:
            HotbedError: INVALID_INPUT, TOO_LARGE, and what the replicas say.
        """
        try:
            return await self._run(request, caller)
        except HotbedError as error:
            raise name_fields(error, request.names, is_single=request.is_single) from None

    async def _run(self, request: EmbedRequest, caller: Caller) -> EmbedResult:
        start = time.perf_counter()
        info = self._pool.info or await self._pool.wait_for_info(caller.deadline)
        if info.task != "embed":
            raise invalid("The model scores pairs; it has no embeddings: use /v1/rerank.", "model")
        if info.outputs and info.outputs[0][0] != "dense":  # where there are dense rows, they lead
            info.check_output("dense")
        check_dimensions(request.spec, info.dimensions)
        if request.documents is not None:
            info.check_spans()
        batch, prompt = await self._token_ids(request)
        self._check_size(batch.num_tokens, request)
        tokenize_s = time.perf_counter() - start
        computed = await spread(
            self._pool,
            batch,
            request.spec,
            row_width=request.spec.row_width(info.dimensions),
            caller=caller,
            max_chunks_per_replica=self._settings.max_chunks_per_replica,
        )
        self._metrics.count_work(request.num_inputs, batch.num_tokens, tokenize_s, computed)
        return EmbedResult(
            rows=computed.rows,
            num_tokens=batch.num_tokens,
            fingerprint=row_fingerprint(
                model=computed.fingerprint,
                tokenizer=self._tokenizer_fingerprint,
                prompt=prompt,
                dimensions=request.spec.dimensions or info.dimensions,
                dtype=request.spec.dtype.value,
                normalize=(
                    info.normalize if request.spec.normalize is None else request.spec.normalize
                ),
                unusual=_unusual(request),
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=computed.queue_us,
            device_us=computed.device_us,
        )

    async def _token_ids(self, request: EmbedRequest) -> tuple[RaggedBatch, str]:
        """(token ids, the prompt put before each text)."""
        if request.token_arrays is None:
            prompt = resolve_prompt(
                self._prompts, prompt_name=request.prompt_name, input_type=request.input_type
            )
            if request.documents is not None:
                return await self._tokenize.encode_chunks(request.documents, prompt), prompt
            assert request.texts is not None, "a request has inputs of some kind: this is a bug"
            options = EncodeOptions(
                prefix=prompt,
                truncate=request.truncate,
                truncation_side=request.truncation_side,
                max_tokens=request.max_tokens,
                add_special_tokens=request.add_special_tokens,
            )
            return await self._tokenize.encode(request.texts, options), prompt
        # Before the ids are looked at: a body can hold some ten million of them.
        self._check_size(sum(map(len, request.token_arrays)), request)
        options = EncodeOptions(
            truncate=request.truncate,
            truncation_side=request.truncation_side,
            max_tokens=request.max_tokens,
        )
        return await self._tokenize.check(request.token_arrays, options), ""

    def _check_size(self, num_tokens: int, request: EmbedRequest) -> None:
        check_request_tokens(num_tokens, self._settings.max_request_tokens, "input")
        if request.max_request_tokens is not None:
            check_request_tokens(
                num_tokens, request.max_request_tokens, "input", whose="of this API"
            )


def _unusual(request: EmbedRequest) -> tuple[str, ...]:
    """What makes these rows others than those of the same model and recipe elsewhere."""
    wishes = {
        "no special tokens": not request.add_special_tokens,
        "within their documents": request.documents is not None,
    }
    return tuple(name for name, is_asked in wishes.items() if is_asked)


def check_dimensions(spec: OutputSpec, native: int, *, whose: str = "this model") -> None:
    """Raises INVALID_INPUT for dimensions that `whose` rows of `native` ones cannot be cut to."""
    if spec.dimensions > native:
        raise invalid(
            f"dimensions is {spec.dimensions}; {whose} has {native} dimensions, so 1 to "
            f"{native} can be asked for.",
            "dimensions",
        )
    if spec.dtype.is_packed and (spec.dimensions or native) % 8:
        raise invalid(
            f"dimensions is {spec.dimensions or native}; for binary rows it must divide by 8.",
            "dimensions",
        )
