"""What a model that scores is read into, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Checkpoint, ScoreHead
from hotbed.rose.engine import RoseEngine
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, write_json
from tests.support.families import make_family
from tests.support.scorers import (
    make_bert_scorer,
    make_family_scorer,
    make_mxbai_reranker,
    make_qwen3_classifier,
    make_qwen3_reranker,
)

SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
SOFTMAX = "torch.nn.modules.activation.Softmax"
TEMPLATE = "{{ 'Judge whether the Document meets the requirements' }}"


def load(folder: Path, **options: Any) -> Checkpoint:
    return load_checkpoint(str(folder), **options)


def head_of(folder: Path, **options: Any) -> ScoreHead:
    head = load(folder, **options).head
    assert head is not None
    return head


def as_cross_encoder(folder: Path, *modules: str, **settings: Any) -> Path:
    """Add the files that sentence-transformers 6 writes."""
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"x.y.{kind}"}
        for i, kind in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    write_json(
        folder / "config_sentence_transformers.json",
        {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None, **settings},
    )
    return folder


def test_a_class_for_sequences_scores(tmp_path: Path) -> None:
    checkpoint = load(make_bert_scorer(tmp_path / "m", labels=3))
    assert checkpoint.task == "score"
    assert checkpoint.head == ScoreHead(
        kind="bert",
        pooling="cls",
        labels=("LABEL_0", "LABEL_1", "LABEL_2"),
        activation="softmax",
        token_types=2,
    )
    assert checkpoint.pooling.pooling == "cls"
    assert not checkpoint.pooling.normalize


def test_the_model_that_embeds_has_no_head(tmp_path: Path) -> None:
    checkpoint = load(make_bert(tmp_path / "m"))
    assert (checkpoint.task, checkpoint.head) == ("embed", None)


@pytest.mark.parametrize("name", ["Qwen3-Reranker-0.6B", "my-RERANK"])
def test_a_causal_model_with_rerank_in_its_name_scores(tmp_path: Path, name: str) -> None:
    folder = make_qwen3_reranker(tmp_path / name)
    head = head_of(folder)
    assert (head.kind, head.pair_form, head.labels) == (
        "yes_no",
        "qwen3_reranker",
        ("relevance",),
    )
    assert load(folder, task="embed").task == "embed"
    assert load(folder, task="embed").pooling.pooling == "last"


def test_a_causal_model_of_another_name_scores_by_template_or_if_asked(tmp_path: Path) -> None:
    folder = make_qwen3_reranker(tmp_path / "model")
    assert load(folder).task == "embed"
    assert head_of(folder, task="score").kind == "yes_no"
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert head_of(folder).kind == "yes_no"
    (folder / "chat_template.jinja").unlink()
    edit_json(folder / "tokenizer_config.json", chat_template=TEMPLATE)
    assert head_of(folder).kind == "yes_no"


def test_a_qwen2_reranker_says_1_or_0_in_its_template(tmp_path: Path) -> None:
    """Without modules.json it was read as an embedder: mxbai-rerank-v2 gave rows of its states."""
    folder = make_mxbai_reranker(tmp_path / "mxbai-rerank-base-v2")
    head = head_of(folder)
    assert (head.kind, head.pair_form, head.tied) == ("yes_no", "mxbai_reranker", True)
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert head.yes_no_tokens == (vocab["1"], vocab["0"])
    other = folder.rename(tmp_path / "qwen2")
    assert load(other).task == "embed"
    (other / "chat_template.jinja").write_text("You are a search relevance expert who …")
    assert head_of(other) == head


def test_a_language_model_that_is_no_known_reranker_is_refused(tmp_path: Path) -> None:
    """As an embedder, which its class would let it be, it would answer with rows."""
    folder = make_family(tmp_path / "bge-reranker-v2-x", "llama", tokenizer="bpe")
    (folder / "modules.json").unlink()
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"])
    with refused("config.json", "LlamaForCausalLM", "Qwen2ForCausalLM"):
        load(folder)


@pytest.mark.parametrize(("name", "warns"), [("Qwen3-Reranker-4B", False), ("a-reranker", True)])
def test_a_template_that_the_files_do_not_state_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, warns: bool
) -> None:
    load(make_qwen3_reranker(tmp_path / name))
    assert ("do not say in which template" in caplog.text) == warns


def test_the_folder_above_does_not_name_the_model(tmp_path: Path) -> None:
    assert load(make_qwen3_reranker(tmp_path / "rerankers" / "qwen3")).task == "embed"


def test_sentence_transformers_embedder_with_rerank_in_its_name_embeds(tmp_path: Path) -> None:
    assert load(make_qwen3(tmp_path / "embedder-not-reranker")).task == "embed"


@pytest.mark.parametrize(("make", "task"), [(make_bert, "score"), (make_bert_scorer, "embed")])
def test_a_task_the_model_cannot_do_is_refused(tmp_path: Path, make: Any, task: Any) -> None:
    with refused(task, "can", "only"):
        load(make(tmp_path / "m"), task=task)


def test_a_transformer_alone_is_no_embedder(tmp_path: Path) -> None:
    folder = as_cross_encoder(make_bert(tmp_path / "m"), "Transformer")
    with refused('architectures is ["BertModel"]', "BertForSequenceClassification"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": {}}, "id2label"),
        ({"id2label": ["a"]}, "id2label"),
        ({"id2label": None, "num_labels": 0}, "num_labels is 0"),
        ({"problem_type": "ranking"}, "problem_type"),
    ],
)
def test_labels_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    folder = make_bert_scorer(tmp_path / "m", labels=2)
    edit_json(folder / "config.json", **changes)
    with refused("config.json", says):
        load(folder)


def test_labels_have_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = make_bert_scorer(tmp_path / "m", labels=11)
    names = {str(i): f"name {i}" for i in reversed(range(11))}
    edit_json(folder / "config.json", id2label=names)
    assert head_of(folder).labels == tuple(f"name {i}" for i in range(11))
    edit_json(folder / "config.json", id2label=None, num_labels=3)
    assert head_of(folder).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("labels", "changes", "activation"),
    [
        (1, {}, "sigmoid"),
        (1, {"problem_type": "regression"}, "sigmoid"),
        (1, {"sentence_transformers": {"activation_fn": IDENTITY}}, "none"),
        (1, {"sbert_ce_default_activation_function": IDENTITY}, "none"),
        (2, {}, "softmax"),
        (2, {"problem_type": "single_label_classification"}, "softmax"),
        (2, {"problem_type": "multi_label_classification"}, "sigmoid"),
        (2, {"problem_type": "regression"}, "none"),
        (2, {"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        (2, {"sentence_transformers": {"activation_fn": SOFTMAX}}, "softmax"),
        (2, {"sentence_transformers": {"version": "4.1"}}, "softmax"),
    ],
)
def test_the_activation_is_the_files_else_by_labels_and_problem(
    tmp_path: Path, labels: int, changes: dict[str, Any], activation: str
) -> None:
    """agentmemory 724, vLLM 11881: softmax over one logit; softmax over independent labels."""
    folder = make_bert_scorer(tmp_path / "m", labels=labels)
    edit_json(folder / "config.json", **changes)
    assert head_of(folder).activation == activation


def test_the_settings_file_of_the_cross_encoder_goes_first(tmp_path: Path) -> None:
    folder = make_bert_scorer(tmp_path / "m")
    edit_json(folder / "config.json", sentence_transformers={"activation_fn": SIGMOID})
    as_cross_encoder(folder, "Transformer", activation_fn=IDENTITY)
    assert head_of(folder).activation == "none"


@pytest.mark.parametrize(
    ("labels", "function", "says"),
    [
        (1, "torch.nn.modules.activation.Tanh", "Tanh"),
        (1, "my_code.Sigmoidal", "torch.nn.Sigmoid"),
        (1, SOFTMAX, "1.0 for every text"),
        (2, 7, "is 7"),
    ],
)
def test_an_activation_that_is_not_run_is_refused(
    tmp_path: Path, labels: int, function: object, says: str
) -> None:
    folder = make_bert_scorer(tmp_path / "m", labels=labels)
    edit_json(folder / "config.json", sentence_transformers={"activation_fn": function})
    with refused("sentence_transformers.activation_fn", says):
        load(folder)


@pytest.mark.parametrize(
    ("options", "names", "token_types"),
    [
        ({}, ["input_ids", "token_type_ids"], 2),
        ({}, None, 2),
        ({}, ["input_ids", "attention_mask"], 1),
        ({"type_vocab_size": 1}, ["input_ids", "token_type_ids"], 1),
    ],
)
def test_token_types_are_there_if_model_and_tokenizer_have_them(
    tmp_path: Path, options: dict[str, Any], names: Any, token_types: int
) -> None:
    folder = make_bert_scorer(tmp_path / "m", **options)
    edit_json(folder / "tokenizer_config.json", model_input_names=names)
    assert head_of(folder).token_types == token_types


@pytest.mark.parametrize(
    ("changes", "pooling", "dense_bias", "eps"),
    [
        ({}, "cls", False, 1e-5),
        ({"classifier_pooling": "mean", "classifier_bias": True}, "mean", True, 1e-5),
        ({"norm_eps": 1e-3}, "cls", False, 1e-3),
    ],
)
def test_modernberts_head_is_as_its_config_says(
    tmp_path: Path, changes: dict[str, Any], pooling: str, dense_bias: bool, eps: float
) -> None:
    checkpoint = load(make_family_scorer(tmp_path / "m", "modernbert", **changes))
    head = checkpoint.head
    assert head is not None
    assert (head.kind, head.pooling) == ("modernbert", pooling)
    assert (head.dense_bias, head.norm_eps) == (dense_bias, eps)
    assert checkpoint.pooling.pooling == pooling


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"classifier_pooling": "max"}, "classifier_pooling"),
        ({"classifier_activation": "relu"}, "classifier_activation"),
    ],
)
def test_a_modernbert_head_that_is_not_run_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    folder = make_family_scorer(tmp_path / "m", "modernbert")
    edit_json(folder / "config.json", **changes)
    with refused("config.json", says):
        load(folder)


def test_a_missing_head_is_named(tmp_path: Path) -> None:
    """TEI 600: "cannot find tensor" without a word of which model would have it."""
    folder = make_family_scorer(tmp_path / "m", "xlm-roberta")
    path = folder / "model.safetensors"
    tensors = {n: t for n, t in load_file(path).items() if not n.startswith("classifier.out")}
    save_file(tensors, path)
    with refused("classifier.out_proj.weight", "missing"):
        RoseEngine.load(load(folder), num_threads=1)


def test_logit_scores_tokens_are_read(tmp_path: Path) -> None:
    folder = as_cross_encoder(make_qwen3_reranker(tmp_path / "m"), "Transformer", "LogitScore")
    (folder / "1_LogitScore").mkdir()
    write_json(folder / "1_LogitScore" / "config.json", {"true_token_id": 5, "false_token_id": 3})
    assert head_of(folder).yes_no_tokens == (5, 3)
    write_json(folder / "1_LogitScore" / "config.json", {"true_token_id": 5})
    with refused("false_token_id is None"):
        load(folder)


def test_yes_and_no_are_single_tokens_by_their_words(tmp_path: Path) -> None:
    """Infinity 645: ids looked up with specials added, or swapped. vLLM 19675: "Yes" is another."""
    folder = make_qwen3_reranker(tmp_path / "reranker")
    path = folder / "tokenizer.json"
    vocab = json.loads(path.read_text())["model"]["vocab"]
    assert head_of(folder).yes_no_tokens == (vocab["yes"], vocab["no"])
    raw = json.loads(path.read_text())
    del raw["model"]["vocab"]["yes"]
    path.write_text(json.dumps(raw))
    with refused("single tokens", "tokenizer.json"):
        load(folder)


def test_a_chain_that_does_not_suit_the_head_is_refused(tmp_path: Path) -> None:
    folder = as_cross_encoder(make_qwen3_reranker(tmp_path / "a"), "Transformer")
    with refused("modules.json", "LogitScore"):
        load(folder)
    folder = as_cross_encoder(make_bert_scorer(tmp_path / "b"), "Transformer", "LogitScore")
    with refused("modules.json", "Transformer -> LogitScore"):
        load(folder)


@pytest.mark.parametrize(("labels", "form"), [(1, "qwen3_reranker"), (2, "tokenizer")])
def test_qwen3_with_one_label_takes_the_template(tmp_path: Path, labels: int, form: str) -> None:
    """A Qwen3-Reranker with a converted head is junk without it (vLLM 20478)."""
    assert head_of(make_qwen3_classifier(tmp_path / "m", labels=labels)).pair_form == form


def test_qwen3_that_sentence_transformers_trained_takes_plain_pairs(tmp_path: Path) -> None:
    folder = as_cross_encoder(make_qwen3_classifier(tmp_path / "m"), "Transformer")
    assert head_of(folder).pair_form == "tokenizer"
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert head_of(folder).pair_form == "qwen3_reranker"


def test_a_default_prompt_is_the_templates_instruction(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "Find it"}, "default_prompt_name": "query"}
    folder = as_cross_encoder(make_qwen3_reranker(tmp_path / "a"), "Transformer", "LogitScore")
    (folder / "1_LogitScore").mkdir()
    write_json(folder / "1_LogitScore" / "config.json", {"true_token_id": 5, "false_token_id": 3})
    edit_json(folder / "config_sentence_transformers.json", **prompts)
    assert head_of(folder).instruction == "Find it"
    folder = as_cross_encoder(make_bert_scorer(tmp_path / "b"), "Transformer", **prompts)
    with refused("default_prompt_name"):
        load(folder)


def test_the_fingerprint_covers_the_activation(tmp_path: Path) -> None:
    folder = make_bert_scorer(tmp_path / "m")
    before = fingerprint(load(folder), "float32")
    edit_json(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
    assert fingerprint(load(folder), "float32") != before
