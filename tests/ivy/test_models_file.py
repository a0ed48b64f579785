"""Files of models and prompts that cannot work are refused by file and field."""

from __future__ import annotations

import pytest

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.models_file import PromptsEntry, read_models_file, read_prompts_file

GOOD = """[[models]]
model = "m"
replicas = ["a:1"]
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "models"),
        ("models = []", "models is empty"),
        ("[[models]]\nmodel = 'm'", "replicas"),
        (GOOD.replace('["a:1"]', "[]"), "models[0].replicas is empty"),
        (GOOD.replace("a:1", "dns:a"), "models[0].replicas: 'dns:a' must have the form"),
        (GOOD + "min_ready_replicas = 0", "models[0].min_ready_replicas"),
        (GOOD + "name = 'x'", "unknown field `name`"),
        (GOOD + "names = 'x'", "models[0].names"),
        ("[[models", "cannot be read"),
    ],
)
def test_a_wrong_file_of_models(tmp_path, text, says):
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(HotbedError) as caught:
        read_models_file(path)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert str(path) in caught.value.message
    assert says in caught.value.message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(HotbedError, match="cannot be read"):
        read_prompts_file(tmp_path / "none.toml")


def test_a_default_that_is_no_prompt_is_refused():
    with pytest.raises(HotbedError, match="default_prompt 'x' is none of"):
        PromptsEntry(default_prompt="x", prompts={"y": ""}).over(Prompts())


def test_the_models_own_default_stays_unless_another_is_given():
    own = Prompts(by_name={"q": "Q: "}, default_name="q")
    assert PromptsEntry(prompts={"q": "new: "}).over(own).default_name == "q"
