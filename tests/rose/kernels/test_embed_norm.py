"""BERT's embedding in one kernel."""

from __future__ import annotations

import pytest
import torch

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.embed_norm", reason="Triton is not installed")

EPS = 1e-12


@pytest.mark.parametrize("width", [8, 312, 384, 1024])
@pytest.mark.parametrize("num_rows", [1, 4, 5, 11])
def test_matches_the_reference(randoms: Randoms, border: int, num_rows: int, width: int) -> None:
    """On both sides of the border between launches."""
    word, position = randoms.normal(50, width), randoms.normal(20, width)
    w, b = randoms.normal(width), randoms.normal(width)
    ids, positions = randoms.integers(50, num_rows), randoms.integers(20, num_rows)
    got = kernel.embed_norm(ids, positions, word, position, w, b, eps=EPS)
    assert got.shape == (num_rows, width)
    assert_close(got, kernel.reference(ids, positions, word, position, w, b, eps=EPS))


def test_first_and_last_rows_of_the_tables_are_reached(randoms: Randoms) -> None:
    word, position, w = randoms.normal(7, 16), randoms.normal(3, 16), randoms.normal(16)
    ids = torch.tensor([0, 6, 6, 0], dtype=torch.int32, device=word.device)
    positions = torch.tensor([2, 0, 2, 0], dtype=torch.int32, device=word.device)
    got = kernel.embed_norm(ids, positions, word, position, w, w, eps=EPS)
    assert_close(got, kernel.reference(ids, positions, word, position, w, w, eps=EPS))


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    word, position, w = randoms.normal(7, 16), randoms.normal(3, 16), randoms.normal(16)
    ids = randoms.integers(3, 4)
    with pytest.raises(ValueError, match="token_ids"):
        kernel.embed_norm(ids.long(), ids, word, position, w, w, eps=EPS)
    with pytest.raises(ValueError, match="positions"):
        kernel.embed_norm(ids, ids[:2], word, position, w, w, eps=EPS)
    with pytest.raises(ValueError, match="position has rows of 8"):
        kernel.embed_norm(ids, ids, word, position[:, :8].contiguous(), w, w, eps=EPS)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.embed_norm(ids, ids, word.T, position, w, w, eps=EPS)


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * (3 * 100 * 2 + 8)
