"""How sentence-transformers loads and calls the transformer, done or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Checkpoint
from hotbed.checkpoint.transformer_settings import FILE_NAMES
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_bert(tmp_path / "m")


def _load(folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder))


@pytest.mark.parametrize(
    "changes", [{"transformer_task": "fill-mask"}, {"module_output_name": "logits"}]
)
def test_another_output_of_the_transformer_is_refused(
    bert: Path, changes: dict[str, object]
) -> None:
    edit_json(bert / "sentence_bert_config.json", **changes)
    with refused("sentence_bert_config.json", *changes):
        _load(bert)


@pytest.mark.parametrize(
    ("max_seq_length", "model_max_length", "expected"),
    [
        (64, 128, 64),
        (None, 128, 128),
        (512, 128, 128),  # beyond the position table: the table's 128 is the limit
        (64, 32, 64),  # sentence-transformers sets the tokenizer's limit to the stated one
        (None, 10**30, 128),  # what transformers writes where nobody set it
        (None, None, 128),
        (None, 100.0, 100),
    ],
)
def test_the_stated_limit_counts_up_to_the_positions(
    bert: Path, max_seq_length: int | None, model_max_length: float | None, expected: int
) -> None:
    edit_json(bert / "sentence_bert_config.json", max_seq_length=max_seq_length)
    edit_json(bert / "tokenizer_config.json", model_max_length=model_max_length)
    assert _load(bert).max_tokens == expected


def test_without_the_files_the_position_table_is_the_limit(bert: Path) -> None:
    (bert / "sentence_bert_config.json").unlink()
    (bert / "tokenizer_config.json").unlink()
    assert _load(bert).max_tokens == 128


@pytest.mark.parametrize("value", [0, -1, "256", True])
def test_a_limit_that_is_none_is_refused(bert: Path, value: object) -> None:
    edit_json(bert / "sentence_bert_config.json", max_seq_length=value)
    with refused("max_seq_length", repr(value)):
        _load(bert)


@pytest.mark.parametrize("name", FILE_NAMES[1:])
def test_the_names_of_old_versions_are_read(bert: Path, name: str) -> None:
    """Their limit and case were lost: other vectors for what is cut or has capitals."""
    file = bert / "sentence_bert_config.json"
    edit_json(file, max_seq_length=17, do_lower_case=True)
    file.rename(bert / name)
    read = _load(bert)
    assert (read.max_tokens, read.tokenizer.lower_case) == (17, True)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("config_args", {"num_hidden_layers": 1}, "config_args.num_hidden_layers is 1"),
        ("config_kwargs", {"is_causal": False}, "config_kwargs.is_causal is false"),
        ("model_args", {"variant": "fp16"}, "model_args.variant"),
        ("tokenizer_args", {"do_lower_case": False}, "tokenizer_args.do_lower_case is false"),
        ("processor_kwargs", {"add_eos_token": True}, "processor_kwargs.add_eos_token"),
        ("processing_kwargs", {"text": {"max_length": 8}}, "processing_kwargs.text"),
        ("processing_kwargs", ["text"], "processing_kwargs must be an object"),
        ("modality_config", {"message": {"method": "forward"}}, "modality_config"),
        (
            "modality_config",
            {"text": {"method": "forward", "method_output_name": "pooler_output"}},
            "modality_config.text.method_output_name",
        ),
        ("modality_config", {"text": {"method": "get_text_features"}}, "get_text_features"),
        ("do_lower_case", "yes", "do_lower_case"),
    ],
)
def test_arguments_that_change_vectors_are_refused(
    bert: Path, field: str, value: Any, says: str
) -> None:
    """They were passed over in silence, and the rows were another model's."""
    edit_json(bert / "sentence_bert_config.json", **{field: value})
    with refused("sentence_bert_config.json", says):
        _load(bert)


def test_arguments_that_change_none_are_let_through(bert: Path) -> None:
    edit_json(
        bert / "sentence_bert_config.json",
        model_args={"attn_implementation": "sdpa", "torch_dtype": "float16"},
        config_args={"use_memory_efficient_attention": False, "variant": None},
        processor_kwargs={"padding_side": "left", "model_max_length": 33},
        processing_kwargs={"text": {}},
        modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        module_output_name="token_embeddings",
    )
    assert _load(bert).max_tokens == 33
