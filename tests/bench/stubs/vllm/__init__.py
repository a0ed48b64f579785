"""Stands in for vLLM 0.22: the arguments and answers that the bench uses, and refuses others.

The rows come from transformers. It exists so that a mistyped argument is found on a machine that
cannot run vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotbed.bench.adapters.protocol import Item, Spec
from hotbed.bench.adapters.transformers import Transformers

# Of vLLM 0.22's EngineArgs.
KNOWN = {
    "runner",
    "dtype",
    "max_model_len",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "kv_cache_memory_bytes",
    "hf_overrides",
}


@dataclass
class EmbeddingOutput:
    embedding: list[float]


@dataclass
class ClassificationOutput:
    probs: list[float]


@dataclass
class Output:
    outputs: EmbeddingOutput | ClassificationOutput


def load(model: str, arguments: dict[str, Any]) -> Transformers:
    """The rows' source; checks what vLLM would refuse."""
    assert set(arguments) <= KNOWN, f"unknown to vLLM: {set(arguments) - KNOWN}"
    assert arguments["runner"] == "pooling"
    assert arguments["dtype"] == "bfloat16"
    assert arguments["max_num_batched_tokens"] >= arguments["max_model_len"]
    assert 0 < arguments["gpu_memory_utilization"] <= 1
    overrides = arguments.get("hf_overrides", {})
    scores = overrides.get("architectures") == ["Qwen3ForSequenceClassification"]
    if scores:
        assert overrides["is_original_qwen3_reranker"] is True
        assert overrides["classifier_from_token"] == ["no", "yes"]
    task = "score" if scores else "embed"
    return Transformers(Spec(model, task, "cpu", 512, 1, "", False, {}))


class LLM:
    def __init__(self, model: str, **arguments: Any) -> None:
        self._rows_of = load(model, arguments)
        self._scores = "hf_overrides" in arguments

    def embed(self, prompts: Sequence[Any], *, use_tqdm: bool = True) -> list[Output]:
        assert not self._scores, "this model does not embed"
        return [Output(EmbeddingOutput(row)) for row in self._rows(prompts)]

    def classify(self, prompts: Sequence[Any], *, use_tqdm: bool = True) -> list[Output]:
        assert self._scores, "this model does not classify"
        return [Output(ClassificationOutput(row)) for row in self._rows(prompts)]

    def _rows(self, prompts: Sequence[Any]) -> list[list[float]]:
        items = [Item("", prompt["prompt_token_ids"]) for prompt in prompts]
        adapter = self._rows_of
        rows: list[list[float]] = adapter.embed(adapter.prepare(items)).tolist()
        return rows
