"""The recipe's default form: what a request without wishes gets."""

from __future__ import annotations

import pytest
import torch

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.rose.layers.dense import Dense, DenseActivation
from hotbed.rose.layers.pool import packed_rows
from hotbed.rose.recipe import Recipe

SAME = [
    OutputSpec(),
    OutputSpec(dimensions=8),
    OutputSpec(normalize=True),
    # What Tulip makes of every request that says nothing.
    OutputSpec(dimensions=8, normalize=True),
]
OTHER = [
    OutputSpec(dimensions=4),
    OutputSpec(normalize=False),
    OutputSpec(dtype=OutputDtype.FLOAT16),
    OutputSpec(dimensions=8, dtype=OutputDtype.INT8),
]


@pytest.mark.parametrize("spec", SAME)
def test_the_default_form_is_known_however_it_is_asked_for(spec: OutputSpec) -> None:
    recipe = Recipe("mean", True, "none")
    assert recipe.is_default_form(spec, 8)
    rows = torch.randn(3, 8)
    (asked,) = recipe.finish(rows, [OutputSegment(0, 3, spec)])
    (plain,) = recipe.finish(rows, [OutputSegment(0, 3, OutputSpec())])
    assert torch.equal(asked, plain)


@pytest.mark.parametrize("spec", OTHER)
def test_another_form_is_not_taken_for_it(spec: OutputSpec) -> None:
    assert not Recipe("mean", True, "none").is_default_form(spec, 8)


@pytest.mark.parametrize("activation", ["none", "tanh", "relu", "gelu"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), -1e38])
def test_an_infinity_that_a_dense_module_hides_is_seen(
    activation: DenseActivation, bad: float
) -> None:
    """Tanh makes 1 of it, ReLU 0. The last value is finite, but ten times it is not."""
    modules = [Dense(torch.eye(4) * 10, None, kind) for kind in (activation, "tanh")]
    recipe = Recipe("mean", True, "none", tuple(modules))
    pooled = torch.ones(3, 4)
    pooled[1, 2] = bad
    assert recipe.of_pooled(pooled)[1].tolist() == [True, False, True]
    rows = recipe.of_pooled_on_gpu(packed_rows(pooled, pooled, torch.ones(3)))
    assert rows.finite.tolist() == [1, 0, 1]
