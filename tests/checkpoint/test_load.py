"""A model folder as a whole, and what a person reads when something of it is not there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hotbed.checkpoint import DEFAULT_MODEL, Checkpoint, load_checkpoint
from hotbed.checkpoint.records import BertConfig, DecoderConfig, PoolingConfig, Prompts
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert, make_qwen3


@pytest.mark.weights
def test_the_default_model() -> None:
    checkpoint = load_checkpoint(DEFAULT_MODEL)
    assert checkpoint.name == DEFAULT_MODEL
    assert (checkpoint.source, checkpoint.family) == ("package", "bert")
    assert checkpoint.config == BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=512,
    )
    assert checkpoint.pooling == PoolingConfig(pooling="mean", normalize=True)
    assert checkpoint.prompts == Prompts()
    assert checkpoint.max_tokens == 256
    assert len(checkpoint.tensors) == 104
    assert checkpoint.tensors["embeddings.word_embeddings.weight"].shape == (30522, 384)


def test_a_model_is_named_as_it_was_asked_for(bert_folder: Path) -> None:
    checkpoint = load_checkpoint(str(bert_folder))
    assert (checkpoint.name, checkpoint.source) == (str(bert_folder), "folder")
    assert checkpoint.tokenizer.tokenizer_json == bert_folder / "tokenizer.json"


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("sharded", [False, True])
def test_every_layout_gives_the_same_names(
    tmp_path: Path, qwen3_folder: Path, prefix: str, sharded: bool
) -> None:
    folder = make_qwen3(tmp_path / "m", prefix=prefix, sharded=sharded)
    checkpoint = load_checkpoint(str(folder))
    assert checkpoint.tensors.keys() == load_checkpoint(str(qwen3_folder)).tensors.keys()
    assert all(checkpoint.stored_names[n] == prefix + n for n in checkpoint.tensors)


def test_a_masked_language_model_is_an_embedder_too(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", prefix="bert.", sentence_transformers=False)
    edit_json(folder / "config.json", architectures=["BertForMaskedLM"])
    assert load_checkpoint(str(folder)).architecture == "BertForMaskedLM"


def test_a_bidirectional_qwen3(pplx_folder: Path) -> None:
    checkpoint = load_checkpoint(str(pplx_folder))
    assert isinstance(checkpoint.config, DecoderConfig)
    assert (checkpoint.config.is_causal, checkpoint.quantizer) == (False, "pplx")
    assert checkpoint.pooling == PoolingConfig(pooling="mean", normalize=False)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("config.json", ["config.json is missing"]),
        ("tokenizer.json", ["tokenizer.json is missing", "vocab.txt", "save_pretrained"]),
        ("model.safetensors", ["model.safetensors is missing"]),
        ("1_Pooling/config.json", ["config.json is missing", "1_Pooling"]),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, missing: str, says: list[str]) -> None:
    folder = make_bert(tmp_path / "m")
    (folder / missing).unlink()
    (folder / "vocab.txt").touch()
    with refused(str(folder), *says):
        load_checkpoint(str(folder))


def test_an_empty_folder_is_not_a_model(tmp_path: Path) -> None:
    with refused("config.json is missing", str(tmp_path)):
        load_checkpoint(str(tmp_path))


def test_no_code_of_the_folder_runs(tmp_path: Path) -> None:
    """A model with code of its own (auto_map) loads by its family, or not at all."""
    folder = make_qwen3(tmp_path / "m", pplx=True)
    for name in ("configuration.py", "modeling.py", "st_quantize.py"):
        (folder / name).write_text("raise SystemExit('code of the folder was run')")
    edit_json(folder / "config.json", auto_map={"AutoModel": "modeling.PPLXQwen3Model"})
    assert load_checkpoint(str(folder)).family == "decoder"


def test_without_weights_all_else_is_there(tmp_path: Path) -> None:
    """What a gateway needs: it must not fetch gigabytes for a tokenizer."""
    folder = make_bert(tmp_path / "m")
    whole = load_checkpoint(str(folder))
    (folder / "model.safetensors").unlink()
    bare = load_checkpoint(str(folder), weights=False)
    assert bare == msgspec.structs.replace(whole, tensors={}, stored_names={})


def test_the_records_are_frozen(bert_folder: Path) -> None:
    checkpoint: Checkpoint = load_checkpoint(str(bert_folder))
    with pytest.raises(AttributeError):
        checkpoint.max_tokens = 1_000_000  # type: ignore[misc]


@pytest.mark.parametrize(
    ("sep_token", "expected"),
    [(None, "<|endoftext|>"), ("<sep>", "<sep>"), ({"content": "<sep>"}, "<sep>")],
)
def test_pplx_context_separates_chunks(tmp_path: Path, sep_token: object, expected: str) -> None:
    folder = make_qwen3(tmp_path / "m", pplx=True, contextual=True)
    edit_json(folder / "tokenizer_config.json", sep_token=sep_token)
    assert load_checkpoint(str(folder)).tokenizer.chunk_separator == expected


def test_no_other_model_puts_anything_between_chunks(tmp_path: Path) -> None:
    """pplx-embed-v1 differs from the contextual one in auto_map alone."""
    folder = make_qwen3(tmp_path / "m", pplx=True)
    edit_json(folder / "tokenizer_config.json", sep_token="<|endoftext|>")
    assert load_checkpoint(str(folder)).tokenizer.chunk_separator is None


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_an_adapter_is_refused_not_left_out(tmp_path: Path, place: str) -> None:
    """transformers adds its weights to those of the model beside it."""
    folder = make_bert(tmp_path / "m")
    if place:
        _move_transformer(folder, place)
    load_checkpoint(str(folder))
    (folder / place / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with refused("adapter_config.json", "adapters (LoRA) are not applied", "merge_and_unload()"):
        load_checkpoint(str(folder))


def test_a_folder_with_an_adapter_alone_says_so_and_not_that_a_file_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with refused("adapters (LoRA) are not applied"):
        load_checkpoint(str(tmp_path))


def _move_transformer(folder: Path, place: str) -> None:
    """As older versions of sentence-transformers lay a model out."""
    (folder / place).mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                 "sentence_bert_config.json"):  # fmt: skip
        if (folder / file).exists():
            (folder / file).rename(folder / place / file)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = place
    (folder / "modules.json").write_text(json.dumps(modules))
