"""Full-size models on a card against `transformers`: `python -m bench.full_size`.

Seeded random weights in the real shapes are saved as their authors' files would be, loaded by
`RoseEngine.load` in BF16, and held to `transformers` in fp32 with the same weights: every row's
cosine >= 0.999, for lengths on both sides of the paths' limits, alone, mixed and turned round,
eager, captured and replayed. A difference between texts is asked for, too, so that rows which
ignore their text do not pass.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModel, Qwen3Config, XLMRobertaConfig

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine

MIN_COSINE = 0.999
MAX_OTHER_COSINE = 0.98
LENGTHS = (1, 2, 31, 32, 33, 64, 96, 128, 129, 256, 257, 511, 512, 513, 1000, 2048)
# A class of 512s as well: steps of one length take paths of their own.
UNIFORM = (512,) * 9
_QWEN3 = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
CONFIGS: dict[str, tuple[Any, str]] = {
    "Qwen3-Embedding-0.6B": (Qwen3Config(**_QWEN3), "last"),
    "Qwen3-0.6B bidirectional": (Qwen3Config(**_QWEN3, is_causal=False), "mean"),
    "bge-m3": (
        XLMRobertaConfig(
            vocab_size=250_002,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=8194,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            pad_token_id=1,
        ),
        "cls",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--models", nargs="*", default=list(CONFIGS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    attention = AttentionSettings(kernel_dir=arguments.kernel_dir)
    failed = False
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            smallest, other = check(name, Path(folder), attention, arguments.device)
        passes = smallest >= MIN_COSINE and other <= MAX_OTHER_COSINE
        failed |= not passes
        print(
            f"{name}: smallest cosine {smallest:.6f}, between different texts at most {other:.3f}:",
            "pass" if passes else "FAIL",
            flush=True,
        )
    return int(failed)


def check(
    name: str, folder: Path, attention: AttentionSettings, device: str
) -> tuple[float, float]:
    """(smallest cosine to transformers, largest cosine between different texts)."""
    config, pooling = CONFIGS[name]
    random = np.random.default_rng(0)
    # From 5 on: 1 is XLM-R's padding, whose position transformers gives to no token.
    texts = [random.integers(5, config.vocab_size, n).astype(np.int32) for n in LENGTHS + UNIFORM]
    expected = reference_rows(config, pooling, texts, folder, device)
    engine = RoseEngine.load(load_checkpoint(str(folder)), device=device, attention=attention)
    mixed, uniform = texts[: len(LENGTHS)], texts[len(LENGTHS) :]
    smallest = 1.0
    for _ in ("eager", "captured", "replayed"):
        for rows, wanted in (
            (embed(engine, mixed), expected[: len(mixed)]),
            (embed(engine, mixed[::-1])[::-1], expected[: len(mixed)]),
            (np.concatenate([embed(engine, [t]) for t in mixed]), expected[: len(mixed)]),
            (embed(engine, uniform), expected[len(mixed) :]),
        ):
            smallest = min(smallest, float(cosines(rows, wanted).min()))
    engine.close()
    unit = F.normalize(torch.from_numpy(expected), dim=1)
    pairs = unit @ unit.T - 2 * torch.eye(len(unit))
    return smallest, float(pairs.max())


@torch.inference_mode()
def saved_model(
    config: Any, pooling: str, folder: Path, device: str, tokenizer: Path | None = None
) -> Any:
    """The model of transformers, fp32 with seeded random weights, and its files in `folder`."""
    with torch.device(device):
        model = AutoModel.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator(device).manual_seed(0)
    for parameter_name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator, device=device)
        if "norm" in parameter_name.lower() and not parameter_name.endswith("bias"):
            values = 1 + 0.1 * values
        elif parameter.dim() == 1:
            values *= 0.02
        elif "embed" not in parameter_name:
            values /= parameter.shape[1] ** 0.5
        # What the engine loads as BF16 is what transformers has in fp32.
        parameter.copy_(values.to(torch.bfloat16))
    model.save_pretrained(folder)
    write_companions(folder, config.hidden_size, pooling, tokenizer)
    return model


@torch.inference_mode()
def reference_rows(
    config: Any, pooling: str, texts: list[NDArray[np.int32]], folder: Path, device: str
) -> NDArray[np.float32]:
    """Rows of transformers in fp32; the model's files are in `folder` then."""
    model = saved_model(config, pooling, folder, device)
    rows = []
    for text in texts:
        ids = torch.from_numpy(text).to(device).long()[None]
        states = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        row = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
        rows.append(F.normalize(row, dim=0).cpu().numpy())
    return np.stack(rows)


def write_companions(folder: Path, width: int, pooling: str, tokenizer: Path | None) -> None:
    """sentence-transformers' files, and the tokenizer's, by default one that nobody asks."""
    to = folder / "tokenizer.json"
    if tokenizer is None:
        Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(to))
    else:
        shutil.copyfile(tokenizer, to)
    (folder / "tokenizer_config.json").write_text("{}")
    kinds = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    keys = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    chosen = {f"pooling_mode_{key}": name == pooling for name, key in keys.items()}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": width, **chosen})
    )


def embed(engine: RoseEngine, texts: list[NDArray[np.int32]]) -> NDArray[np.float32]:
    """The engine's rows."""
    result = engine.step(RaggedBatch.from_sequences(texts)).wait()
    if not result.finite.all():
        sys.exit("a row is not finite")
    return result.rows[0]


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each pair of rows."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


if __name__ == "__main__":
    sys.exit(main())
