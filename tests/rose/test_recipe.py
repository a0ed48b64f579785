"""The recipe's default form: what a request without wishes gets."""

from __future__ import annotations

import pytest
import torch

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
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
