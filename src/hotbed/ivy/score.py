"""The one internal request of whoever wants scores, and its way: pairs in, a row of scores a pair.

Every dialect of reranking and classification becomes a `ScoreRequest`; what it makes of the scores
(sorted, cut to the best, with the documents or without) is the dialect's own matter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotbed.core.errors import HotbedError, invalid
from hotbed.core.fingerprint import answer_fingerprint
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.caller import Caller
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.metrics import ModelMetrics
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.spread import spread
from hotbed.ivy.tokenize_pairs import PairTokenizeStage
from hotbed.text.pairs import PairOptions

# How replicas name the sequences of a request, and the tokenizer texts alone.
_SEQUENCE = re.compile(r"input\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Pairs to score and how.

    Attributes:
        queries: one for all documents, or one a document; None: each document is a text of its
            own, for classifiers.
        documents: the second texts, at least one.
        raw_scores: logits instead of the model's activation of them.
        options: truncation, instruction, and the dialect's names of the texts for errors.
        names: the dialect's names of other fields, for errors.
    """

    queries: str | list[str] | None
    documents: list[str]
    raw_scores: bool = False
    options: PairOptions = field(default_factory=PairOptions)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """Scores of one request.

    Attributes:
        scores: float32 [pairs, labels], in the order of the pairs.
        labels: names of the model's labels.
        num_tokens: tokens computed, query, document and special tokens of every pair.
        fingerprint: short hash over all that the scores depend on besides the texts.
        tokenize_us: time until the token ids were there.
        queue_us: longest wait of a chunk in a replica's queue.
        device_us: device time of all chunks together.
    """

    scores: NDArray[np.float32]
    labels: tuple[str, ...]
    num_tokens: int
    fingerprint: str
    tokenize_us: int
    queue_us: int
    device_us: int

    @property
    def relevance(self) -> NDArray[np.float32]:
        """float32 [pairs]: the scores of a model with one label, a reranker.

        Raises:
            HotbedError: INVALID_INPUT if the model has several labels.
        """
        if len(self.labels) != 1:
            raise invalid(
                f"The model has {len(self.labels)} labels ({', '.join(self.labels[:8])}): it "
                "classifies and cannot rank documents.",
                "model",
            )
        return self.scores[:, 0]


class ScorePipeline:
    """Turns requests into scores.

    Args:
        tokenize: of the model's pairs; None: the model embeds.
        pool: of replicas.
        settings: of the gateway.
        metrics: of the model.
    """

    def __init__(
        self,
        *,
        tokenize: PairTokenizeStage | None,
        pool: ReplicaPool,
        settings: IvySettings,
        metrics: ModelMetrics,
    ) -> None:
        self._tokenize = tokenize
        self._pool = pool
        self._settings = settings
        self._metrics = metrics

    async def run(self, request: ScoreRequest, caller: Caller) -> ScoreResult:
        """Scores of the request's pairs, in order.

        Args:
            request: form already checked.
            caller: who asks.

        Raises:
            HotbedError: INVALID_INPUT, TOO_LARGE, and what the replicas say, in the names of the
                request's dialect.
        """
        if self._tokenize is None:
            raise invalid("The model embeds; it has no scores: ask for embeddings.", "model")
        start = time.perf_counter()
        info = self._pool.info or await self._pool.wait_for_info(caller.deadline)
        try:
            batch = await self._tokenize.encode(request.queries, request.documents, request.options)
            tokenize_s = time.perf_counter() - start
            return await self._score(request, batch, info, tokenize_s, caller)
        except HotbedError as error:
            shown = _in_dialect(error, request.options.fields.document)
            raise name_fields(shown, request.names) from None

    async def _score(
        self,
        request: ScoreRequest,
        batch: RaggedBatch,
        info: ModelInfo,
        tokenize_s: float,
        caller: Caller,
    ) -> ScoreResult:
        assert self._tokenize is not None, "checked by `run`"
        self._tokenize.check_size(batch.num_tokens, request.options)
        computed = await spread(
            self._pool,
            batch,
            OutputSpec(raw_scores=request.raw_scores),
            row_width=info.dimensions,
            caller=caller,
            max_chunks_per_replica=self._settings.max_chunks_per_replica,
        )
        self._metrics.count_work(batch.num_sequences, batch.num_tokens, tokenize_s, computed)
        return ScoreResult(
            scores=np.concatenate(computed.rows),
            labels=info.labels,
            num_tokens=batch.num_tokens,
            fingerprint=answer_fingerprint(
                computed.fingerprint,
                *self._tokenize.fingerprint_parts,
                self._tokenize.instruction(request.options),
                request.raw_scores,
            ),
            tokenize_us=int(tokenize_s * 1e6),
            queue_us=computed.queue_us,
            device_us=computed.device_us,
        )


def _in_dialect(error: HotbedError, document: str) -> HotbedError:
    def name(match: re.Match[str]) -> str:
        return document.format(int(match[1]))

    return HotbedError(
        error.code,
        _SEQUENCE.sub(name, error.message),
        param=None if error.param is None else _SEQUENCE.sub(name, error.param),
        retry_after_s=error.retry_after_s,
    )
