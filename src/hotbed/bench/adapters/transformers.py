"""transformers: in fp32 the reference of all rows, in the compute type a system like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hotbed.bench.adapters.pooled import pooling_of
from hotbed.bench.adapters.protocol import Item, Spec

BATCH_SIZE = 32
"""sentence-transformers' default; more sequences are several batches."""


class Transformers:
    """Options: none. Sequences of one length are a batch without padding, others padded."""

    def __init__(self, spec: Spec) -> None:
        from transformers import (  # noqa: PLC0415
            AutoModel,
            AutoModelForCausalLM,
            AutoTokenizer,
        )

        if spec.num_threads is not None:
            torch.set_num_threads(spec.num_threads)
        self._device = torch.device(spec.device)
        self._one_by_one = spec.reference
        is_fp32 = spec.reference or spec.device == "cpu"
        kind = AutoModelForCausalLM if spec.task == "score" else AutoModel
        model: Any = kind.from_pretrained(
            spec.folder,
            dtype=torch.float32 if is_fp32 else torch.bfloat16,
            attn_implementation="sdpa",
            local_files_only=True,
        )
        self._model = model.to(self._device).eval()
        if spec.task == "score":
            tokenizer = AutoTokenizer.from_pretrained(spec.folder, local_files_only=True)
            self._yes_no = [tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no")]
            self._pooling, self._normalize = "last", False
        else:
            self._yes_no = []
            self._pooling, self._normalize = pooling_of(spec.folder)
        dtype = "float32" if is_fp32 else "bfloat16"
        self.settings = f"model classes, token ids in, {dtype}, SDPA, no torch.compile,"
        self.settings += f" batches of {BATCH_SIZE}"

    def prepare(self, items: Sequence[Item]) -> list[list[int]]:
        return [item.ids for item in items]

    @torch.inference_mode()
    def embed(self, prepared: list[list[int]]) -> NDArray[np.float32]:
        size = 1 if self._one_by_one else BATCH_SIZE
        starts = range(0, len(prepared), size)
        return np.concatenate([self._batch(prepared[i : i + size]) for i in starts])

    def rows(self, result: NDArray[np.float32]) -> NDArray[Any]:
        return result

    def _batch(self, sequences: list[list[int]]) -> NDArray[np.float32]:
        lengths = torch.tensor([len(ids) for ids in sequences])
        longest = int(lengths.max())
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        for row, some in zip(ids, sequences, strict=True):
            row[: len(some)] = torch.tensor(some)
        mask = (torch.arange(longest) < lengths[:, None]).to(self._device)
        ids, lengths = ids.to(self._device), lengths.to(self._device)
        is_padded = bool((lengths != longest).any())
        # XLM-R counts positions from the ids that are not padding; these have none.
        base = self._model.model if self._yes_no else self._model
        states = base(input_ids=ids, attention_mask=mask.long() if is_padded else None)
        row = self._pool(states.last_hidden_state, mask, lengths)
        if self._yes_no:
            head = self._model.get_output_embeddings().weight[self._yes_no]
            yes, no = (row @ head.T).float().unbind(1)
            row = torch.sigmoid(yes - no)[:, None]
        if self._normalize:
            row = F.normalize(row.float(), dim=1)
        rows: NDArray[np.float32] = row.float().cpu().numpy()
        return rows

    def _pool(self, states: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor) -> Any:
        if self._pooling == "cls":
            return states[:, 0]
        if self._pooling == "last":
            return states[torch.arange(len(states), device=states.device), lengths - 1]
        kept = states.float() * mask[..., None]
        return kept.sum(1) / lengths[:, None]
