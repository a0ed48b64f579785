"""Rows of spans, as pplx-embed-context-v1 makes them, against `transformers` and the formula.

Reference: one bidirectional pass over chunks joined by separators, the mean over each chunk's
states after the final norm, separators left out, zeros for an empty chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.core.test_ragged import with_spans
from tests.support.checkpoints import make_bert, make_qwen3

SEPARATOR = 300
RAW = OutputSpec()
CHUNKS = [[5, 6, 7], [8], [], [9, 10, 11, 12], []]


def document(*chunks: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """(ids joined by separators, spans) of one document."""
    ids: list[int] = []
    spans = []
    for number, chunk in enumerate(chunks):
        ids += [SEPARATOR] * (number > 0)
        spans.append((len(ids), len(ids) + len(chunk)))
        ids += chunk
    return ids, spans


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoseEngine]:
    folder = make_qwen3(tmp_path_factory.mktemp("m") / "m", pplx=True)
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    """The same weights in a form that transformers can load."""
    folder: Path = make_qwen3(tmp_path_factory.mktemp("m") / "m", causal=False)
    return AutoModel.from_pretrained(folder, dtype=torch.float32).eval()


def run(engine: RoseEngine, batch: RaggedBatch, spec: OutputSpec = RAW) -> np.ndarray:
    result = engine.step(batch, [OutputSegment(0, batch.num_rows, spec)]).wait()
    assert result.finite.tolist() == [True] * batch.num_rows
    return result.rows[0]


def test_a_chunk_is_the_mean_of_its_own_states_alone(
    engine: RoseEngine, reference: torch.nn.Module
) -> None:
    ids, spans = document(*CHUNKS)
    with torch.inference_mode():
        states = reference(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    expected = np.stack(
        [states[a:b].mean(0) if a < b else np.zeros_like(states[0]) for a, b in spans]
    )
    got = run(engine, with_spans((ids, spans)))
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())
    assert got[2].tolist() == [0.0] * got.shape[1]


def test_an_empty_chunk_is_zeros_in_int8_and_all_ones_in_bits(engine: RoseEngine) -> None:
    batch = with_spans(document(*CHUNKS))
    assert not run(engine, batch, OutputSpec(dtype=OutputDtype.INT8))[[2, 4]].any()
    assert (run(engine, batch, OutputSpec(dtype=OutputDtype.UBINARY))[[2, 4]] == 255).all()


def test_codes_are_pplx_embeds_own(engine: RoseEngine) -> None:
    batch = with_spans(document(*CHUNKS))
    pooled = run(engine, batch)
    codes = run(engine, batch, OutputSpec(dtype=OutputDtype.INT8))
    np.testing.assert_array_equal(codes, np.round(np.tanh(pooled) * 127).astype(np.int8))
    bits = run(engine, batch, OutputSpec(dtype=OutputDtype.UBINARY))
    np.testing.assert_array_equal(bits, np.packbits(pooled >= 0, axis=1))


def test_a_document_of_one_chunk_is_a_plain_text(engine: RoseEngine) -> None:
    """Queries are sent so."""
    ids, spans = document([4, 5, 6, 7])
    plain = run(engine, RaggedBatch.from_sequences([ids]))
    np.testing.assert_allclose(run(engine, with_spans((ids, spans))), plain, atol=1e-6)


def test_rows_are_the_same_alone_in_a_batch_and_in_another_order(engine: RoseEngine) -> None:
    documents = [
        document([4, 5], [6]),
        document(*CHUNKS),
        document([7] * 30, [8] * 3),
        document([1]),
        document([2, 3], [9, 9, 9]),
    ]
    alone = [run(engine, with_spans(d)) for d in documents]
    np.testing.assert_allclose(
        run(engine, with_spans(*documents)), np.concatenate(alone), atol=1e-5
    )
    order = [3, 0, 4, 2, 1]
    mixed = run(engine, with_spans(*(documents[i] for i in order)))
    np.testing.assert_allclose(mixed, np.concatenate([alone[i] for i in order]), atol=1e-5)


def test_a_chunk_reads_its_document(engine: RoseEngine) -> None:
    """Else it would be no contextual embedding."""
    first, other = (run(engine, with_spans(document([5, 6], last))) for last in ([7], [8]))
    assert np.abs(first[0] - other[0]).max() > 1e-3


def test_a_model_that_does_not_pool_by_mean_refuses_spans(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", pooling="cls")
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    with pytest.raises(HotbedError, match=r"pools by 'cls'.*'mean'"):
        engine.step(with_spans(document([5], [6])))
    engine.close()
