"""What the gateway reads of a model itself."""

from __future__ import annotations

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.served_model import load_served_model, served_names
from hotbed.ivy.settings import IvySettings
from tests.support.checkpoints import make_bert


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
    served = load_served_model(IvySettings(model=str(folder), fast_tokenizers="off"))
    assert served.names == (str(folder), "mine")
    assert served.prompts.by_name == {"query": "q: "}
    assert served.tokenizer.max_tokens == served.expected.max_tokens == 48
    assert served.tokenizer.vocab_size == served.expected.vocab_size
    assert served.expected.name == str(folder)


def test_a_model_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(HotbedError) as caught:
        load_served_model(IvySettings(model=str(tmp_path / "none"), offline=True))
    assert caught.value.code in (ErrorCode.MODEL_NOT_FOUND, ErrorCode.UNAVAILABLE)
