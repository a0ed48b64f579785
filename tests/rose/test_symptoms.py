"""What users of other servers report about embedders, each as the smallest batch that showed it.

Parity in general is test_parity.py's; these are the shapes that went wrong elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModel

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.support.families import make_family

BPE = {"tokenizer": "bpe"}


def rows(folder: Path, sequences: list[list[int]], dtype: str = "float32") -> np.ndarray:
    """Hotbed's, not normalised, all in one step; every one of them finite."""
    engine = RoseEngine.load(load_checkpoint(str(folder)), dtype=dtype, num_threads=1)
    segment = OutputSegment(0, len(sequences), OutputSpec(normalize=False))
    result = engine.step(RaggedBatch.from_sequences(sequences), [segment]).wait()
    engine.close()
    assert result.finite.all()
    return result.rows[0]


def states(folder: Path, ids: list[int], **inputs: Any) -> np.ndarray:
    """transformers' states of one text alone."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), **inputs).last_hidden_state[0].numpy()


def assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    assert np.linalg.norm(got - expected) <= 1e-4 * np.linalg.norm(expected)


def random_ids(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(5, 200, count).tolist()


def test_positions_restart_in_every_packed_sequence(tmp_path: Path) -> None:
    """Counted on over a flattened batch, a second text got the positions behind the first."""
    folder = make_family(tmp_path / "m", "xlm-roberta")
    texts = [random_ids(20, 1), random_ids(20, 2), random_ids(7, 3)]
    for row, ids in zip(rows(folder, texts), texts, strict=True):
        assert_same(row, states(folder, ids).mean(0))


@pytest.mark.parametrize(("pad_id", "limit"), [(1, 96), (3, 94)])
def test_the_longest_text_of_an_xlm_r_is_below_its_table(
    pad_id: int, limit: int, tmp_path: Path
) -> None:
    """513 or 514 tokens were an index error, and 511 with pad id 3."""
    folder = make_family(tmp_path / "m", "xlm-roberta", pad_token_id=pad_id)
    assert load_checkpoint(str(folder)).max_tokens == limit
    ids = random_ids(limit)
    assert_same(rows(folder, [ids])[0], states(folder, ids).mean(0))


@pytest.mark.parametrize(
    ("config", "options"),
    [("bert", {"pooling": "last"}), ("llama", BPE | {"pooling": "last"}), ("qwen2", BPE)],
)
def test_a_pad_id_inside_a_text_is_a_token_like_any_other(
    config: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Searched for, it ended the text early: in Qwen3-Embedding the end token is the pad token."""
    folder = make_family(tmp_path / "m", config, pad_token_id=0, **options)
    ids = [0, *random_ids(5), 0, 0, 7, 0]
    expected = states(folder, ids, attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    pooled = expected[-1] if options.get("pooling") == "last" else expected.mean(0)
    assert_same(rows(folder, [ids, random_ids(30)])[0], pooled)


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_first_and_last_token_are_the_texts_own_among_longer_ones(
    pooling: str, tmp_path: Path
) -> None:
    """Taken at column 0 or -1 of a padded batch, they were pads (cosine 0.37)."""
    folder = make_family(tmp_path / "m", "bert", pooling=pooling)
    texts = [random_ids(n, n) for n in (3, 40, 1, 12)]
    for row, ids in zip(rows(folder, texts), texts, strict=True):
        assert_same(row, states(folder, ids)[0 if pooling == "cls" else -1])


def test_modernbert_is_finite_for_a_short_text_beside_one_of_128(tmp_path: Path) -> None:
    """NaN where the longest was a multiple of 32 and at least 128: rows masked as a whole."""
    folder = make_family(tmp_path / "m", "modernbert", max_position_embeddings=160)
    for longest in (128, 160):
        texts = [random_ids(longest), random_ids(5)]
        for row, ids in zip(rows(folder, texts), texts, strict=True):
            assert_same(row, states(folder, ids).mean(0))


def test_gemma3_is_finite_for_a_text_shorter_than_the_window_beside_a_longer(
    tmp_path: Path,
) -> None:
    """728 and 142 tokens with a window of 512 gave NaN: pad rows saw nothing at all."""
    folder = make_family(tmp_path / "m", "gemma3_text", **BPE)
    texts = [random_ids(90), random_ids(18)]
    for row, ids in zip(rows(folder, texts), texts, strict=True):
        assert_same(row, states(folder, ids).mean(0))


def test_local_attention_is_local_above_the_window_on_a_cpu_too(tmp_path: Path) -> None:
    """Ignored there, texts above the window came out at cosine 0.86."""
    folder = make_family(tmp_path / "m", "modernbert")
    ids = random_ids(90)
    local = rows(folder, [ids])[0]
    assert_same(local, states(folder, ids).mean(0))
    wide = make_family(tmp_path / "wide", "modernbert", local_attention=192)
    other = rows(wide, [ids])[0]
    assert np.linalg.norm(local - other) > 1e-2 * np.linalg.norm(local)


def test_a_bidirectional_window_looks_both_ways(tmp_path: Path) -> None:
    """One sided or of the wrong width it changes what the first token sees."""
    folder = make_family(tmp_path / "m", "gemma3_text", pooling="cls", num_hidden_layers=1, **BPE)
    ids = random_ids(40)
    before = rows(folder, [ids])[0]
    for distance, seen in ((16, True), (17, False)):
        changed = list(ids)
        changed[distance] = ids[distance] + 1
        moved = bool(np.abs(rows(folder, [changed])[0] - before).max() > 1e-6)
        assert moved is seen, f"token {distance}"


def test_a_short_text_of_a_causal_model_is_the_same_beside_longer_ones(tmp_path: Path) -> None:
    """Pads on one side and positions counted from them gave another row (Qwen3-Embedding)."""
    folder = make_family(tmp_path / "m", "qwen3", pooling="last", **BPE)
    texts = [random_ids(n, n) for n in (1, 3, 60, 2)]
    for row, ids in zip(rows(folder, texts), texts, strict=True):
        assert_same(row, states(folder, ids)[-1])


def test_one_token_beside_others_is_a_text_like_any_other(tmp_path: Path) -> None:
    """A sequence of length 1 broke the path without padding."""
    folder = make_family(tmp_path / "m", "llama", pooling="last", **BPE)
    texts = [random_ids(1, n) for n in range(5)] + [random_ids(30)]
    for row, ids in zip(rows(folder, texts), texts, strict=True):
        assert_same(row, states(folder, ids)[-1])


def test_states_beyond_the_range_of_float16_stay_finite(tmp_path: Path) -> None:
    """EmbeddingGemma's reach 800,000; float16, which ends at 65,504, is not offered."""
    folder = make_family(tmp_path / "m", "gemma3_text", sharded=False, **BPE)
    tensors = load_file(folder / "model.safetensors")
    tensors["embed_tokens.weight"] *= 10_000
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ids = random_ids(40)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    largest = model.get_input_embeddings()(torch.tensor([ids])).abs().max()
    assert largest > 65_504
    assert_same(rows(folder, [ids, random_ids(5)])[0], states(folder, ids).mean(0))
    assert np.isfinite(rows(folder, [ids, random_ids(5)], dtype="bfloat16")).all()


@pytest.mark.parametrize(
    ("config", "options"),
    [("bert", {}), ("modernbert", {}), ("mpnet", {}), ("gemma3_text", BPE), ("llama", BPE)],
)
def test_bfloat16_gives_no_nan_for_texts_of_unequal_length(
    config: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A padded batch had rows that saw nothing, and a mask that overflowed half precision."""
    folder = make_family(tmp_path / "m", config, **options)
    texts = [random_ids(90), random_ids(1), random_ids(33)]
    got, expected = rows(folder, texts, dtype="bfloat16"), rows(folder, texts)
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((got * expected).sum(1) / norms).min() >= 0.999


@pytest.mark.parametrize("config", ["nomic_bert", "llama"])
def test_scaling_begins_where_the_trained_positions_end(config: str, tmp_path: Path) -> None:
    """Scaled always, or never, or stopped at the trained positions: vectors or texts were lost."""
    options: dict[str, Any] = BPE if config == "llama" else {}
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}
    scaled = make_family(
        tmp_path / "scaled",
        config,
        max_position_embeddings=48,
        rope_theta=None,
        rope_parameters=rope,
        **options,
    )
    plain = make_family(
        tmp_path / "plain",
        config,
        rope_theta=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        **options,
    )
    texts = [random_ids(48), random_ids(96)]
    short, long = rows(scaled, texts)
    assert_same(short, rows(plain, texts)[0])
    assert_same(long, states(scaled, texts[1]).mean(0))
    assert np.linalg.norm(long - rows(plain, texts)[1]) > 1e-2 * np.linalg.norm(long)
    assert load_checkpoint(str(scaled)).max_tokens == 96
