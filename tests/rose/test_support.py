"""docs/models.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from hotbed.checkpoint import root_prefix
from hotbed.checkpoint.config import MODEL_TYPES
from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import FamilyName
from hotbed.doctor import plain
from hotbed.doctor.tiny_models import MODELS
from hotbed.rose.registry import FAMILIES
from hotbed.rose.support import page
from tests.support.checkpoints import make_qwen3
from tests.support.families import CONFIGS, make_family

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), (
        "write it anew: python -m hotbed.rose.support > docs/models.md"
    )


def test_every_type_has_an_example_and_every_family_a_type() -> None:
    assert all(known.example for known in MODEL_TYPES.values())
    assert {known.family for known in MODEL_TYPES.values()} == set(FAMILIES)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_checkpoint_of_every_type_is_read_as_the_table_says(
    model_type: str, tmp_path: Path
) -> None:
    if model_type in CONFIGS:
        folder = make_family(tmp_path / "m", model_type)
    else:
        folder = make_qwen3(tmp_path / "m", pplx=model_type.startswith("bidirectional"))
    checkpoint = load_checkpoint(str(folder))
    known = MODEL_TYPES[model_type]
    assert checkpoint.family == known.family
    assert checkpoint.architecture in known.classes


def test_every_family_has_its_rows_in_every_table() -> None:
    """A row that is missing is a KeyError when the first such model is loaded."""
    tables = (get_args(FamilyName), root_prefix._ANCHOR, root_prefix._BODY, plain.FAMILIES, MODELS)
    for table in tables:
        assert set(table) == set(FAMILIES)


def test_every_family_is_tested_against_transformers() -> None:
    """A new type needs a config in tests/support/families.py, and a row in parity_models.py."""
    parity = (Path(__file__).parent / "parity_models.py").read_text()
    for model_type in set(MODEL_TYPES) - {"qwen3", "bidirectional_pplx_qwen3"}:
        assert f'"config": "{model_type}"' in parity, model_type


def test_what_the_guide_to_adding_a_model_names_is_there() -> None:
    root = PAGE.parents[1]
    guide = (root / "docs" / "adding-a-model.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)", guide)
    assert len(links) > 10
    assert [link for link in links if not (root / "docs" / link).exists()] == []
    reader = (root / "src/hotbed/checkpoint/config_modernbert.py").read_text()
    quoted = [line[4:] for line in guide.splitlines() if line.startswith("    ")]
    code = [line.strip() for line in quoted if line.strip() != "…" and "python -m" not in line]
    assert code
    assert [line for line in code if line not in reader] == []
    for name in ("attention_specs", "weight_map", "read_rope", "MODEL_TYPES", "ArchitectureConfig"):
        assert name in guide
    for name in (
        "_ANCHOR",
        "_BODY",
        "heads",
        "FAMILIES",
        "TYPES",
        "ModelType",
        "CONFIGS",
        "_RENAMED",
        "WRONG",
    ):
        assert name in guide
