"""sentence-transformers behind its tokenizer: features in, so that token ids can be given."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotbed.bench.adapters.protocol import Item, Spec
from hotbed.bench.adapters.transformers import BATCH_SIZE

# torch.compile makes a graph for one sequence and one for several, each for all lengths.
_COMPILED_FOR = ((1, 128), (5, 512))


class SentenceTransformers:
    """Options: attn_implementation, compile (true or false)."""

    def __init__(self, spec: Spec) -> None:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415

        if spec.num_threads is not None:
            torch.set_num_threads(spec.num_threads)
        on_gpu = spec.device == "cuda"
        has_flash = importlib.util.find_spec("flash_attn") is not None
        default = "flash_attention_2" if on_gpu and has_flash else "sdpa"
        attention = spec.options.get("attn_implementation", default)
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self._model: Any = SentenceTransformer(
            spec.folder,
            device=spec.device,
            local_files_only=True,
            model_kwargs={"dtype": dtype, "attn_implementation": attention},
        ).eval()
        self._device = torch.device(spec.device)
        compiles = spec.options.get("compile", "true" if on_gpu else "false") == "true"
        if compiles:
            transformer: Any = self._model[0]
            transformer.auto_model = torch.compile(transformer.auto_model, dynamic=True)
            for n, length in _COMPILED_FOR:
                ids = [5] * min(length, spec.max_tokens)
                self.embed(self.prepare([Item("", ids)] * n))
        how = "torch.compile(dynamic=True)" if compiles else "no torch.compile"
        self.settings = (
            f"modules behind the tokenizer, token ids in, {str(dtype).removeprefix('torch.')}, "
            f"{attention}, {how}, batches of {BATCH_SIZE}"
        )

    def prepare(self, items: Sequence[Item]) -> list[dict[str, torch.Tensor]]:
        starts = range(0, len(items), BATCH_SIZE)
        return [self._padded(items[i : i + BATCH_SIZE]) for i in starts]

    def _padded(self, items: Sequence[Item]) -> dict[str, torch.Tensor]:
        longest = max(len(item.ids) for item in items)
        ids = torch.full((len(items), longest), int(self._model.tokenizer.pad_token_id or 0))
        mask = torch.zeros(len(items), longest, dtype=torch.long)
        for i, item in enumerate(items):
            ids[i, : len(item.ids)] = torch.tensor(item.ids)
            mask[i, : len(item.ids)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    @torch.inference_mode()
    def embed(self, prepared: list[dict[str, torch.Tensor]]) -> NDArray[np.float32]:
        parts = []
        for batch in prepared:
            features = {name: tensor.to(self._device) for name, tensor in batch.items()}
            parts.append(self._model(features)["sentence_embedding"].float())
        rows: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
        return rows

    def rows(self, result: NDArray[np.float32]) -> NDArray[Any]:
        return result
