"""What users of other servers report about embedders, each as the smallest batch that showed it.

Parity in general is test_parity.py's; these are the shapes that went wrong elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.support.families import make_family

BPE = {"tokenizer": "bpe"}


def rows(folder: Path, sequences: list[list[int]]) -> np.ndarray:
    """Hotbed's, not normalised, all in one step; every one of them finite."""
    engine = RoseEngine.load(load_checkpoint(str(folder)), num_threads=1)
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
