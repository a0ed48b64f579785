"""onnxruntime and fastembed on a CPU, from an ONNX file that is made of the same weights."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.pooled import pooling_of
from hotbed.bench.adapters.protocol import Item, Spec

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxRuntime:
    """Options: none. Mean pooling outside the graph, as its users do."""

    def __init__(self, spec: Spec) -> None:
        import onnxruntime  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        if spec.num_threads is not None:
            options.intra_op_num_threads = spec.num_threads
        folder = export_onnx(Path(spec.folder), Path(spec.cache))
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._names = {given.name for given in self._session.get_inputs()}
        self._pooling, self._normalize = pooling_of(spec.folder)
        self.settings = "InferenceSession, token ids in, padded batches, fp32"

    def prepare(self, items: Sequence[Item]) -> dict[str, NDArray[np.int64]]:
        longest = max(len(item.ids) for item in items)
        ids, mask = (np.zeros((len(items), longest), dtype=np.int64) for _ in range(2))
        for i, item in enumerate(items):
            ids[i, : len(item.ids)] = item.ids
            mask[i, : len(item.ids)] = 1
        feeds = dict(zip(_INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))
        return {name: array for name, array in feeds.items() if name in self._names}

    def embed(self, prepared: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        (states,) = self._session.run(None, prepared)
        mask = prepared["attention_mask"]
        if self._pooling == "cls":
            rows = states[:, 0]
        elif self._pooling == "last":
            rows = states[np.arange(len(states)), mask.sum(1) - 1]
        else:
            weights = mask[..., None].astype(np.float32)
            rows = (states * weights).sum(1) / weights.sum(1)
        if self._normalize:
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        made: NDArray[np.float32] = rows
        return made

    def rows(self, result: NDArray[np.float32]) -> NDArray[Any]:
        return result


class FastEmbed:
    """Options: none. Texts in: it offers no way to give token ids."""

    def __init__(self, spec: Spec) -> None:
        from fastembed import TextEmbedding  # noqa: PLC0415

        made = export_onnx(Path(spec.folder), Path(spec.cache))
        self._model: Any = TextEmbedding(
            "sentence-transformers/all-MiniLM-L6-v2",
            threads=spec.num_threads,
            specific_model_path=str(made),
        )
        self.settings = "TextEmbedding, texts in (tokenises in its time), fp32, batch_size 256"

    def prepare(self, items: Sequence[Item]) -> list[str]:
        return [item.text for item in items]

    def embed(self, prepared: list[str]) -> list[Any]:
        return list(self._model.embed(prepared, batch_size=256))

    def rows(self, result: list[Any]) -> NDArray[Any]:
        return np.stack(result).astype(np.float32)


def export_onnx(folder: Path, cache: Path) -> Path:
    """A folder with model.onnx beside the tokenizer's files, from the same weights; made once."""
    made = cache / "onnx"
    if (made / "model.onnx").exists():
        return made
    import torch  # noqa: PLC0415
    from transformers import AutoModel  # noqa: PLC0415

    cache.mkdir(parents=True, exist_ok=True)
    # Renamed when complete: two systems may export at the same time.
    part = Path(tempfile.mkdtemp(dir=cache))
    shutil.copytree(folder, part, dirs_exist_ok=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval().float()

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state

    example = torch.ones(2, 8, dtype=torch.long)
    torch.onnx.export(
        States(),
        (example, example, example * 0),
        str(part / "model.onnx"),
        input_names=list(_INPUTS),
        output_names=["last_hidden_state"],
        dynamic_axes={n: {0: "batch", 1: "tokens"} for n in (*_INPUTS, "last_hidden_state")},
        opset_version=17,
        dynamo=False,
    )
    try:
        os.rename(part, made)
    except OSError:
        if not (made / "model.onnx").exists():
            raise
        shutil.rmtree(part)  # the other one was faster
    return made
