"""How a model's rotary frequencies are scaled for texts longer than it was first trained on.

Records only; the formulas are in `hotbed.rose.layers.rotary_scaling`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_Factor = Annotated[float, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]

# original_max_position_embeddings: the longest texts in training.


class LinearScaling(msgspec.Struct, frozen=True, kw_only=True, tag="linear"):
    """Positions are divided by `factor`."""

    factor: _Factor


class DynamicScaling(msgspec.Struct, frozen=True, kw_only=True, tag="dynamic"):
    """The base grows with the length of what is longer than texts in training were."""

    factor: _Factor
    original_max_position_embeddings: _Count


class Llama3Scaling(msgspec.Struct, frozen=True, kw_only=True, tag="llama3"):
    """Long wavelengths are divided by `factor`, short ones left alone, those between blended."""

    factor: _Factor
    low_freq_factor: _Positive
    high_freq_factor: _Positive
    original_max_position_embeddings: _Count


class YarnScaling(msgspec.Struct, frozen=True, kw_only=True, tag="yarn"):
    """The same by dimension, with a ramp between two numbers of turns, and scores made larger.

    Attributes:
        magnitude: cos and sin are multiplied by it.
        truncate: whether the ramp's ends are moved out to whole dimensions.
    """

    factor: _Factor
    original_max_position_embeddings: _Count
    beta_fast: _Positive = 32.0
    beta_slow: _Positive = 1.0
    magnitude: _Positive
    truncate: bool = True


RopeScaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling
