"""From a pooled row to logits and scores, in the form of either kind of device."""

from __future__ import annotations

import pytest
import torch

from hotbed.core.model_info import Activation
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.rose.layers.head import Head, HeadActivation, HeadDense, activate
from hotbed.rose.layers.pool import packed_rows
from hotbed.rose.recipe import ScoreRecipe


def recipe(activation: Activation = "sigmoid", labels: int = 2) -> ScoreRecipe:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(labels, 8, generator=generator)
    return ScoreRecipe("cls", Head((weight, None)), activation)


def test_a_graphs_default_form_is_what_a_plain_request_gets() -> None:
    score = recipe()
    pooled = torch.randn(3, 8)
    rows = score.of_pooled_on_gpu(packed_rows(pooled, pooled, torch.ones(3)))
    expected, _ = score.of_pooled(pooled)
    (plain,) = score.finish(expected, [OutputSegment(0, 3, OutputSpec())])
    raw = OutputSpec(raw_scores=True)
    (logits,) = score.finish(rows.pooled, [OutputSegment(0, 3, raw)])
    torch.testing.assert_close(rows.default_form, plain)
    # What one copy takes to the host.
    header = rows.packed.numel() - rows.default_form.numel()
    torch.testing.assert_close(rows.packed[header:].view(torch.float32).view(3, 2), plain)
    torch.testing.assert_close(logits, expected)
    assert score.is_default_form(OutputSpec(2, normalize=False), 2)
    assert not score.is_default_form(raw, 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_is_seen_whatever_its_score(bad: float) -> None:
    """Sigmoid makes 1.0 of infinity."""
    score = recipe()
    pooled = torch.zeros(3, 8)
    pooled[1, 0] = bad
    rows = score.of_pooled_on_gpu(packed_rows(pooled, pooled, torch.ones(3)))
    assert rows.finite.tolist() == [1, 0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_an_infinity_that_the_heads_activation_hides_is_seen(
    activation: HeadActivation, bad: float
) -> None:
    """Tanh makes 1 of it, ReLU 0: the score looks like any other."""
    dense = HeadDense(torch.eye(2), None, activation)
    score = ScoreRecipe("cls", Head((torch.ones(1, 2), None), dense), "sigmoid")
    pooled = torch.zeros(3, 2)
    pooled[1, 0] = bad
    assert score.of_pooled(pooled)[1].tolist() == [True, False, True]
    rows = score.of_pooled_on_gpu(packed_rows(pooled, pooled, torch.ones(3)))
    assert rows.finite.tolist() == [1, 0, 1]


def test_scores_near_one_stay_apart() -> None:
    """ST 3892: in bfloat16 logits above 6 all give 1.0."""
    scores = activate(torch.tensor([[6.0], [6.01], [9.0], [9.01]]), "sigmoid")
    assert len(set(scores.flatten().tolist())) == 4


def test_a_head_with_a_dense_layer() -> None:
    """W2 tanh(W1 x + b1) + b2 by hand."""
    dense = HeadDense(
        torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0.5, 0.0]), activation="tanh"
    )
    head = Head((torch.tensor([[1.0, -1.0]]), torch.tensor([0.25])), dense=dense)
    expected = torch.tanh(torch.tensor(1.5)) - torch.tanh(torch.tensor(4.0)) + 0.25
    logits, finite = head(torch.tensor([[1.0, 2.0]]))
    torch.testing.assert_close(logits, expected.view(1, 1))
    assert finite.tolist() == [True]
