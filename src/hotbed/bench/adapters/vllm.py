"""vLLM offline: `LLM` with the pooling runner, token ids in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.protocol import Item, Spec

MAX_NUM_BATCHED_TOKENS = 16_384
"""vLLM's own default for offline use on an H100 or larger; its server gets the same."""
RERANKER = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}
"""hf_overrides of a Qwen3-Reranker as its authors publish it."""
# With a KV cache of a given size this share is only held against the memory that is free, and
# nothing is measured while other processes allocate.
GPU_MEMORY_SHARE = 0.05


def environment() -> dict[str, str]:
    """Variables for a machine without a network, where they are not set."""
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        # Pooling models sample nothing, and its kernels may have to be built.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
    }


def engine_settings(options: Mapping[str, str], *, task: str, max_tokens: int) -> dict[str, Any]:
    """What both the offline engine and the server are started with; `options` come on top."""
    settings: dict[str, Any] = {
        "runner": "pooling",
        "dtype": "bfloat16",
        "max_model_len": max_tokens,
        "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        "gpu_memory_utilization": GPU_MEMORY_SHARE,
        # Inputs come again in a cell; they are to be computed each time, as everywhere else.
        "enable_prefix_caching": False,
    }
    if task == "score":
        settings["hf_overrides"] = RERANKER
    return settings | {name: _value(text) for name, text in options.items()}


def in_words(settings: Mapping[str, Any]) -> str:
    """The settings for a row."""
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name != "runner")


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Vllm:
    """Options: any of `LLM`'s arguments."""

    def __init__(self, spec: Spec) -> None:
        for name, value in environment().items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("VLLM_CACHE_ROOT", spec.cache)
        from vllm import LLM  # noqa: PLC0415

        self._scores = spec.task == "score"
        settings = engine_settings(spec.options, task=spec.task, max_tokens=spec.max_tokens)
        self._llm: Any = LLM(model=spec.folder, **settings)
        self.settings = f"LLM, token ids in, CUDA graphs and torch.compile, {in_words(settings)}"

    def prepare(self, items: Sequence[Item]) -> list[dict[str, list[int]]]:
        return [{"prompt_token_ids": item.ids} for item in items]

    def embed(self, prepared: list[dict[str, list[int]]]) -> list[Any]:
        ask = self._llm.classify if self._scores else self._llm.embed
        result: list[Any] = ask(prepared, use_tqdm=False)
        return result

    def rows(self, result: list[Any]) -> NDArray[Any]:
        if self._scores:
            return np.array([output.outputs.probs for output in result], dtype=np.float32)
        return np.array([output.outputs.embedding for output in result], dtype=np.float32)
