"""A family that computes something else is found, and only that family."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hotbed.doctor.proofs import model_proofs
from hotbed.doctor.tiny_models import MODELS
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.layers import disentangled, mlp, relative_bias
from hotbed.rose.layers.norm import RMSNorm
from hotbed.rose.layers.rotary import Rotation
from hotbed.rose.models import gemma3, jina_bert
from hotbed.rose.registry import FAMILIES

ROTARY = {"decoder", "gemma3", "modernbert", "rotary_bert"}


def not_proved() -> set[str]:
    made = model_proofs(torch.device("cpu"), AttentionSettings())
    return {proof.what.removeprefix("model ") for proof in made if not proof.works}


def test_every_family_of_the_registry_is_proved() -> None:
    assert set(MODELS) == set(FAMILIES)
    assert not_proved() == set()


def half_a_rotation(patch: pytest.MonkeyPatch) -> None:
    right = Rotation.apply
    patch.setattr(Rotation, "apply", lambda self, x: (right(self, x) + x) / 2)


def norms_without_scale(patch: pytest.MonkeyPatch) -> None:
    right = RMSNorm.__call__
    patch.setattr(RMSNorm, "__call__", lambda self, x: right(self, x) * 1.01)


def no_distances(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relative_bias, "bucket", lambda distances, num_buckets: distances * 0)


def weights_without_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gemma3, "_plus_one", lambda weight: weight)


def gates_of_another_kind(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(mlp._GATES, "gelu", torch.nn.functional.silu)


def no_slopes(patch: pytest.MonkeyPatch) -> None:
    right = relative_bias.alibi
    patch.setattr(jina_bert, "alibi", lambda *sizes, like: right(*sizes, like=like) * 0)


def distances_turned_round(patch: pytest.MonkeyPatch) -> None:
    right = disentangled.bucket
    patch.setattr(disentangled, "bucket", lambda d, *sizes: right(-d, *sizes))


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (half_a_rotation, ROTARY),
        (norms_without_scale, {"decoder", "gemma3", "t5"}),
        (no_distances, {"mpnet", "t5"}),
        (distances_turned_round, {"deberta"}),
        (weights_without_one, {"gemma3"}),
        (no_slopes, {"jina_bert"}),
        (gates_of_another_kind, {"jina_bert", "modernbert", "rotary_bert"}),
    ],
)
def test_a_fault_in_a_layer_is_found_in_the_families_that_have_it(
    fault: Callable[[pytest.MonkeyPatch], None], found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert not_proved() == found
