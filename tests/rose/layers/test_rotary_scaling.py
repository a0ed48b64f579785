"""What scaling does to a rotation, whatever the other texts of its step are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hotbed.core.ragged import RaggedBatch
from hotbed.core.rope import DynamicScaling, LinearScaling, Llama3Scaling, RopeScaling, YarnScaling
from hotbed.rose.batch import pack
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.layers.rotary_scaling import fixed_frequencies

HEAD_DIM, THETA, TRAINED = 64, 10_000.0, 32
CPU = torch.device("cpu")
DYNAMIC = DynamicScaling(factor=2.5, original_max_position_embeddings=TRAINED)


def rotation(lengths: list[int], scaling: RopeScaling | None = None) -> Rotation:
    rotary = Rotary(head_dim=HEAD_DIM, theta=THETA, max_positions=128, device=CPU, scaling=scaling)
    return rotary.at(pack(RaggedBatch.from_sequences([np.zeros(n, np.int32) for n in lengths])))


def angles_of(made: Rotation, tokens: slice) -> torch.Tensor:
    return torch.cat((made.cos[tokens, 0], made.sin[tokens, 0]), dim=1)


@pytest.mark.parametrize("length", [1, TRAINED - 1, TRAINED])
def test_a_short_text_beside_a_long_one_is_rotated_bit_for_bit_as_without_scaling(
    length: int,
) -> None:
    """Scaled by the batch's longest text, the same text got another vector beside another."""
    plain = angles_of(rotation([length]), slice(0, length))
    beside = angles_of(rotation([80, length], DYNAMIC), slice(80, 80 + length))
    assert torch.equal(beside, plain)
    assert torch.equal(angles_of(rotation([length], DYNAMIC), slice(0, length)), plain)


def test_a_long_text_has_its_own_frequencies_and_not_a_longer_ones() -> None:
    alone = angles_of(rotation([TRAINED + 8], DYNAMIC), slice(0, TRAINED + 8))
    beside = angles_of(rotation([80, TRAINED + 8], DYNAMIC), slice(80, 80 + TRAINED + 8))
    assert torch.equal(beside, alone)
    longer = angles_of(rotation([80], DYNAMIC), slice(0, TRAINED + 8))
    assert (longer - alone).abs().max() > 0.01
    plain = angles_of(rotation([TRAINED + 8]), slice(0, TRAINED + 8))
    assert (plain - alone).abs().max() > 0.01


def test_dynamic_is_its_formula() -> None:
    length, pair = 80, 5
    growth = 2.5 * length / TRAINED - 1.5
    base = THETA * growth ** (HEAD_DIM / (HEAD_DIM - 2))
    angle = 79 * base ** (-2 * pair / HEAD_DIM)
    made = rotation([length], DYNAMIC)
    assert made.cos[79, 0, pair].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert made.sin[79, 0, pair].item() == pytest.approx(math.sin(angle), abs=1e-5)


def test_linear_is_a_position_divided() -> None:
    made = rotation([100], LinearScaling(factor=4.0))
    plain = rotation([26])
    torch.testing.assert_close(made.cos[0:104:4][:25], plain.cos[:25], atol=1e-5, rtol=0)


def test_llama3_leaves_short_waves_and_divides_long_ones() -> None:
    scaling = Llama3Scaling(
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=512,
    )
    plain = fixed_frequencies(HEAD_DIM, THETA, None, CPU)
    ratio = fixed_frequencies(HEAD_DIM, THETA, scaling, CPU) / plain
    turns = 512 * plain / (2 * math.pi)
    torch.testing.assert_close(ratio[turns > 4], torch.ones(int((turns > 4).sum())))
    torch.testing.assert_close(ratio[turns < 1], torch.full((int((turns < 1).sum()),), 1 / 8))
    between = ratio[(turns > 1) & (turns < 4)]
    assert len(between) > 1
    assert (between.diff() < 0).all()
    assert ((between > 1 / 8) & (between < 1)).all()


def test_yarns_magnitude_is_on_cos_and_sin() -> None:
    scaling = YarnScaling(factor=4.0, original_max_position_embeddings=512, magnitude=1.25)
    made = rotation([3], scaling)
    torch.testing.assert_close(made.cos**2 + made.sin**2, torch.full_like(made.cos, 1.25**2))


def test_yarn_leaves_the_first_pairs_and_divides_the_last() -> None:
    scaling = YarnScaling(factor=4.0, original_max_position_embeddings=512, magnitude=1.0)
    plain = fixed_frequencies(HEAD_DIM, THETA, None, CPU)
    ratio = fixed_frequencies(HEAD_DIM, THETA, scaling, CPU) / plain
    # 512 tokens turn 32 times at pair 64 ln(512 / 64 pi) / 2 ln 10000 = 3.2, once at 15.3.
    torch.testing.assert_close(ratio[:4], torch.ones(4))
    torch.testing.assert_close(ratio[16:], torch.full((16,), 0.25))
    assert (ratio[4:16].diff() < 0).all()
