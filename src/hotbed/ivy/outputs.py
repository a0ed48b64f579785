"""The way of a request for outputs whose rows vary: token vectors, multi-vector, sparse."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from hotbed.checkpoint.records import MultiVectorHead
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.fingerprint import answer_fingerprint
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.rows import RowSet
from hotbed.ivy.caller import Caller
from hotbed.ivy.embed import EmbedPipeline, check_dimensions
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.request import EmbedRequest
from hotbed.ivy.spread import spread_outputs
from hotbed.text.multi_vector import filled_up, limited_tokens, without_skipped

MAX_VECTOR_BYTES = 128 * 1024 * 1024
"""Most bytes that the vectors of a request's tokens may come to; past it TOO_LARGE. Their text is
three times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsResult:
    """Outputs of one request, in the order of its inputs.

    Attributes:
        sets: one for each output of the request's spec, the first one first.
        num_tokens: tokens computed, special tokens included.
        fingerprint: short hash over all that the rows depend on besides the inputs.
        tokenize_us: time until the token ids were there.
        queue_us: longest wait of a chunk in a replica's queue.
        device_us: device time of all chunks together.
    """

    sets: list[RowSet]
    num_tokens: int
    fingerprint: str
    tokenize_us: int
    queue_us: int
    device_us: int


class OutputsPipeline(EmbedPipeline):
    """Turns requests into rows, and into outputs of other kinds.

    `multi_vector` is the model's head for late interaction; None: it has none.
    """

    multi_vector: MultiVectorHead | None = None

    async def info(self, caller: Caller) -> ModelInfo:
        """Facts of the model, once a replica was reached."""
        return self._pool.info or await self._pool.wait_for_info(caller.deadline)

    async def run_outputs(self, request: EmbedRequest, caller: Caller) -> OutputsResult:
        """Outputs of the request's inputs, whose spec is not plain.

        Args:
            request: form already checked.
            caller: who asks.

        Raises:
            HotbedError: INVALID_INPUT, also for an output that the model has not; TOO_LARGE, and
                what the replicas say.
        """
        try:
            return await self._run_outputs(request, caller)
        except HotbedError as error:
            raise name_fields(error, request.names, is_single=request.is_single) from None

    async def _run_outputs(self, request: EmbedRequest, caller: Caller) -> OutputsResult:
        start = time.perf_counter()
        info = await self.info(caller)
        specs = request.spec.each()
        for spec in specs:
            _check(spec, info)
        head = self.multi_vector
        is_late = head is not None and any(spec.kind == "multi_vector" for spec in specs)
        if head is not None and is_late and request.token_arrays is None:
            limit = limited_tokens(head, request.input_type, info.max_tokens)
            request = replace(request, max_tokens=request.max_tokens or limit)
        batch, prompt = await self._token_ids(request)
        if head is not None and is_late and request.token_arrays is None:
            batch = filled_up(batch, head, request.input_type)
        self._check_size(batch.num_tokens, request)
        num_bytes = sum(info.answer_bytes(spec, batch.num_tokens, 0) for spec in specs)
        if num_bytes > MAX_VECTOR_BYTES:
            raise HotbedError(
                ErrorCode.TOO_LARGE,
                f"The vectors of the inputs' {batch.num_tokens} tokens are {num_bytes} bytes; the "
                f"limit is {MAX_VECTOR_BYTES} a request. Send fewer or shorter inputs.",
                param="input",
            )
        tokenize_s = time.perf_counter() - start
        computed = await spread_outputs(
            self._pool,
            batch,
            request.spec,
            info=info,
            caller=caller,
            max_chunks_per_replica=self._settings.max_chunks_per_replica,
        )
        self._metrics.count_work(request.num_inputs, batch.num_tokens, tokenize_s, computed)
        sets = [
            without_skipped(rows, batch, head, request.input_type)
            if head is not None and spec.kind == "multi_vector"
            else rows
            for spec, rows in zip(specs, computed.sets, strict=True)
        ]
        return OutputsResult(
            sets=sets,
            num_tokens=batch.num_tokens,
            fingerprint=answer_fingerprint(
                computed.fingerprint,
                self._tokenizer_fingerprint,
                prompt,
                repr(request.spec),
                request.add_special_tokens,
                request.input_type == "query" if is_late else None,
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=computed.queue_us,
            device_us=computed.device_us,
        )


def _check(spec: OutputSpec, info: ModelInfo) -> None:
    """Raises INVALID_INPUT for an output that the model has not, or not of this form."""
    info.check_output(spec.kind)
    check_dimensions(spec, info.widths[spec.kind], whose=f"the {spec.kind} output of this model")
