"""What the gateway reads of a model itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.served_model import load_served_models, served_names
from hotbed.ivy.settings import IvySettings
from hotbed.text.pairs import PairOptions
from tests.support.checkpoints import make_bert
from tests.support.scorers import make_bert_scorer, make_qwen3_reranker


@pytest.mark.parametrize(
    ("model", "aliases", "names"),
    [
        ("org/model", (), ("org/model", "model")),
        ("model", (), ("model",)),
        ("/models/mine/", (), ("/models/mine/", "mine")),
        ("org/model", ("a", "model"), ("a", "model", "org/model")),
    ],
)
def test_aliases_the_full_name_and_its_last_part_are_served(model, aliases, names):
    assert served_names(model, aliases) == names


def test_a_folder_gives_tokenizer_prompts_and_what_replicas_must_agree_with(tmp_path):
    folder = make_bert(
        tmp_path / "mine", prompts={"query": "q: "}, default_prompt_name="query", max_seq_length=48
    )
    (served,) = load_served_models(IvySettings(model=str(folder), fast_tokenizers="off"))
    assert served.names == (str(folder), "mine")
    assert served.prompts.by_name == {"query": "q: "}
    assert served.tokenizer.max_tokens == served.expected.max_tokens == 48
    assert served.tokenizer.vocab_size == served.expected.vocab_size
    assert served.expected.name == str(folder)


def test_a_model_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(HotbedError) as caught:
        load_served_models(IvySettings(model=str(tmp_path / "none"), offline=True))
    assert caught.value.code in (ErrorCode.MODEL_NOT_FOUND, ErrorCode.UNAVAILABLE)


def test_a_file_of_prompts_stands_over_the_models_own(tmp_path):
    folder = make_bert(tmp_path / "mine", prompts={"query": "q: ", "old": "o: "})
    path = tmp_path / "prompts.toml"
    path.write_text('default_prompt = "web"\n[prompts]\nquery = "Q: "\nweb = "W: "\n')
    settings = IvySettings(model=str(folder), fast_tokenizers="off", prompts_file=path)
    (served,) = load_served_models(settings)
    assert served.prompts.by_name == {"query": "Q: ", "old": "o: ", "web": "W: "}
    assert served.prompts.default_name == "web"


def test_a_file_of_models_gives_each_its_names_and_replicas(tmp_path):
    one, two = make_bert(tmp_path / "one"), make_bert(tmp_path / "two")
    path = tmp_path / "models.toml"
    path.write_text(
        f"""
        [[models]]
        model = "{one}"
        names = ["first"]
        replicas = ["a:1", "dns:b:2"]
        min_ready_replicas = 1
        [models.prompts]
        query = "q: "
        [[models]]
        model = "{two}"
        replicas = ["c:3"]
        """
    )
    first, second = load_served_models(IvySettings(models_file=path, fast_tokenizers="off"))
    assert first.names == ("first", str(one), "one")
    assert (first.replicas, first.min_ready_replicas) == (("a:1", "dns:b:2"), 1)
    assert first.prompts.by_name == {"query": "q: "}
    assert (second.names, second.replicas) == ((str(two), "two"), ("c:3",))


def test_a_file_gives_a_reranker_its_instruction(tmp_path):
    folder = make_qwen3_reranker(tmp_path / "rank-reranker")
    path = tmp_path / "prompts.toml"
    path.write_text('instruction = "Find the paper"\n')
    settings = IvySettings(model=str(folder), fast_tokenizers="off", task="score")
    (own,) = load_served_models(settings)
    (other,) = load_served_models(replace(settings, prompts_file=path))
    assert own.pairs.default_instruction != "Find the paper"
    assert other.pairs.default_instruction == "Find the paper"
    asked = own.pairs.encode("a", ["b"], PairOptions(instruction="Find the paper")).batch
    assert np.array_equal(other.pairs.encode("a", ["b"]).batch.token_ids, asked.token_ids)


@pytest.mark.parametrize("make", [make_bert, make_bert_scorer])
def test_an_instruction_for_a_model_without_one_is_refused(tmp_path, make):
    path = tmp_path / "prompts.toml"
    path.write_text('instruction = "Find the paper"\n')
    folder = make(tmp_path / "model")
    with pytest.raises(HotbedError, match="instruction: "):
        load_served_models(IvySettings(model=str(folder), prompts_file=path))
