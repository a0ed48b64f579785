"""Root prefixes: both forms of every checkpoint load, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from hotbed.checkpoint.root_prefix import strip_root_prefix
from tests.checkpoint.errors import refused

QWEN3 = ["embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight"]
BERT = ["embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.bias"]


@pytest.mark.parametrize("prefix", ["", "model.", "model.model.", "base_model.model."])
def test_qwen3_with_and_without_prefix(prefix: str) -> None:
    """Official Qwen3-Embedding files have none; fine-tuned ones have it, sometimes twice."""
    assert strip_root_prefix([prefix + n for n in QWEN3], "decoder") == {
        n: prefix + n for n in QWEN3
    }


@pytest.mark.parametrize("prefix", ["", "bert.", "0.auto_model.", "new."])
def test_bert_with_and_without_prefix(prefix: str) -> None:
    assert strip_root_prefix([prefix + n for n in BERT], "bert") == {n: prefix + n for n in BERT}


def test_heads_outside_the_prefix_keep_their_names() -> None:
    stored = [*(f"bert.{n}" for n in BERT), "cls.predictions.bias"]
    assert strip_root_prefix(stored, "bert")["cls.predictions.bias"] == "cls.predictions.bias"


def test_a_name_that_only_ends_alike_is_not_the_root() -> None:
    stored = [*QWEN3, "my_embed_tokens.weight"]
    assert strip_root_prefix(stored, "decoder")["embed_tokens.weight"] == "embed_tokens.weight"


@pytest.mark.parametrize(
    ("stored", "family", "says"),
    [
        (QWEN3, "bert", ["embeddings.word_embeddings.weight", "bert model", "norm.weight"]),
        ([], "decoder", ["embed_tokens.weight", "none"]),
        (
            [*QWEN3, *(f"draft.{n}" for n in QWEN3)],
            "decoder",
            ["more than one prefix", "'draft.'", "''"],
        ),
        (
            ["model.embed_tokens.weight", "layers.0.mlp.up_proj.weight"],
            "decoder",
            ["mix two forms", "'layers.0.mlp.up_proj.weight'"],
        ),
        (
            [f"bert.{BERT[0]}", "bert.pooler.dense.bias", "pooler.dense.bias"],
            "bert",
            ["'bert.pooler.dense.bias'", "'pooler.dense.bias'", "same name"],
        ),
    ],
    ids=["other-family", "nothing", "two-models", "mixed", "collision"],
)
def test_what_does_not_fit_is_refused(stored: list[str], family: Any, says: list[str]) -> None:
    with refused(*says):
        strip_root_prefix(stored, family)


def test_a_long_list_of_names_is_cut() -> None:
    with refused("'a.0'", "and 995 more"):
        strip_root_prefix([f"a.{i}" for i in range(1000)], "bert")
