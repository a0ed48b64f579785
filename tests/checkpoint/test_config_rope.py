"""The rotation that config.json states: base, scaling, and how long a text may be with it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hotbed.checkpoint.records import DecoderConfig, Gemma3Config, RotaryBertConfig
from hotbed.core.rope import DynamicScaling, LinearScaling, Llama3Scaling, YarnScaling
from tests.checkpoint.configs import GEMMA3, GTE, LLAMA, LLAMA3, NOMIC, QWEN3, REMOVED, read


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5},
        {"rope_theta": 500000, "rope_scaling": None},
        {"rope_theta": REMOVED, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "default"}},
    ],
)
def test_rope_theta_wherever_it_stands(tmp_path: Path, rope: dict[str, object]) -> None:
    """transformers 5 moved it into rope_parameters."""
    found = read(tmp_path, QWEN3, **rope)
    assert isinstance(found.config, DecoderConfig)
    assert found.config.rope_theta == 500_000.0


def test_nomic_scales_above_the_trained_positions_up_to_its_own_limit(tmp_path: Path) -> None:
    """Others scale always, or not at all, or stop at 2,048."""
    scaling = DynamicScaling(factor=2.0, original_max_position_embeddings=2048)
    config = read(tmp_path, NOMIC, rotary_scaling_factor=2).config
    assert isinstance(config, RotaryBertConfig)
    assert (config.rope_scaling, config.longest_sequence) == (scaling, 8192)
    native = {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0}
    changes = {"n_positions": 2048, "rope_parameters": native}
    config = read(tmp_path, NOMIC, **changes).config
    assert isinstance(config, RotaryBertConfig)
    assert (config.rope_scaling, config.longest_sequence) == (scaling, 4096)


# theta, factor and types of gte-base-en-v1.5, gte-large-en-v1.5 and gte-multilingual-base.
@pytest.mark.parametrize(
    ("theta", "factor", "types"), [(500000, 2.0, 0), (160000, 2.0, 2), (20000, 8.0, 1)]
)
def test_gtes_ntk_is_another_base_and_linear_scaling(
    tmp_path: Path, theta: int, factor: float, types: int
) -> None:
    """Frequencies by its own code: those of the base times s, over s^(2/H)."""
    changes = {
        "model_type": "new",
        "architectures": ["NewModel"],
        "rope_theta": theta,
        "rope_scaling": {"type": "ntk", "factor": factor},
        "type_vocab_size": types,
    }
    config = read(tmp_path, GTE, **changes).config
    assert isinstance(config, RotaryBertConfig)
    assert (config.type_vocab_size, config.longest_sequence) == (types, 8192)
    assert isinstance(config.rope_scaling, LinearScaling)
    for i in range(16):
        expected = (theta * factor) ** (-2 * i / 32) / factor ** (2 / 32)
        got = config.rope_theta ** (-2 * i / 32) / config.rope_scaling.factor
        assert got == pytest.approx(expected, rel=1e-12)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"rope_scaling": YARN}, 131072),
        ({"rope_scaling": YARN, "max_position_embeddings": 40960}, 131072),
        ({"rope_scaling": YARN, "max_position_embeddings": 262144}, 262144),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.5}}, 81920),
        ({"rope_scaling": LLAMA3}, 32768),
    ],
)
def test_a_scaled_model_takes_texts_as_long_as_it_was_scaled_for(
    tmp_path: Path, changes: dict[str, object], longest: int
) -> None:
    """YaRN's files have the old limit or the new one; linear ones cannot be told apart."""
    assert read(tmp_path, QWEN3, **changes).config.longest_sequence == longest


@pytest.mark.parametrize(
    ("changes", "magnitude"),
    [
        ({}, 0.1 * math.log(4.0) + 1),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"factor": None}, 1.0),  # max_position_embeddings is what it was in training
    ],
)
def test_yarns_magnitude_follows_its_factor(
    tmp_path: Path, changes: dict[str, object], magnitude: float
) -> None:
    config = read(tmp_path, QWEN3, rope_scaling=YARN | changes).config
    assert isinstance(config, DecoderConfig)
    assert isinstance(config.rope_scaling, YarnScaling)
    assert config.rope_scaling.magnitude == pytest.approx(magnitude)


def test_the_positions_in_training_are_meant_first_where_they_stand_at_the_top(
    tmp_path: Path,
) -> None:
    """As transformers reads files of Phi's kind."""
    changes = {"original_max_position_embeddings": 4096, "rope_scaling": LLAMA3}
    config = read(tmp_path, LLAMA, **changes).config
    assert isinstance(config, DecoderConfig)
    assert isinstance(config.rope_scaling, Llama3Scaling)
    assert config.rope_scaling.original_max_position_embeddings == 4096


def test_gemma3s_scaling_is_its_global_layers(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    config = read(tmp_path, GEMMA3, rope_scaling=linear).config
    assert isinstance(config, Gemma3Config)
    assert config.global_scaling == LinearScaling(factor=8.0)
    later = {
        "full_attention": linear | {"rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    assert read(tmp_path, GEMMA3, rope_parameters=later).config == config
