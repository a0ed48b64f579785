from __future__ import annotations

import pytest

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.text.prompts import resolve_prompt

E5 = Prompts(by_name={"query": "query: ", "passage": "passage: "})
DEFAULTED = Prompts(by_name={"web": "Find: ", "query": "Q: "}, default_name="web")
NONE = Prompts()


@pytest.mark.parametrize(
    ("prompts", "input_type", "expected"),
    [
        (E5, "query", "query: "),
        (E5, "document", "passage: "),
        (Prompts(by_name={"corpus": "c: "}), "document", "c: "),
        (Prompts(by_name={"corpus": "c", "passage": "p", "document": "d"}), "document", "d"),
        (Prompts(by_name={"query": "Q", "document": ""}), "document", ""),
        (NONE, "query", ""),
        (NONE, "document", ""),
        (DEFAULTED, "document", ""),
    ],
)
def test_input_type_finds_the_models_own_name(
    prompts: Prompts, input_type: str, expected: str
) -> None:
    assert resolve_prompt(prompts, prompt_name=None, input_type=input_type) == expected  # type: ignore[arg-type]


def test_default_prompt_applies_when_nothing_is_asked_for() -> None:
    assert resolve_prompt(DEFAULTED, prompt_name=None, input_type=None) == "Find: "
    assert resolve_prompt(E5, prompt_name=None, input_type=None) == ""
    assert resolve_prompt(DEFAULTED, prompt_name="query", input_type=None) == "Q: "


def test_unknown_prompt_name_lists_the_names_there_are() -> None:
    with pytest.raises(HotbedError) as caught:
        resolve_prompt(E5, prompt_name="qeury", input_type=None)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == "prompt_name"
    assert "'passage', 'query'" in caught.value.message
    assert "qeury" not in caught.value.message  # request text stays out of errors


def test_prompt_name_on_a_model_without_prompts_is_refused() -> None:
    with pytest.raises(HotbedError, match="no prompts"):
        resolve_prompt(NONE, prompt_name="query", input_type=None)


def test_name_and_type_together_are_refused() -> None:
    with pytest.raises(HotbedError, match="not both"):
        resolve_prompt(E5, prompt_name="query", input_type="query")


def test_unknown_input_type_is_refused() -> None:
    with pytest.raises(HotbedError) as caught:
        resolve_prompt(E5, prompt_name=None, input_type="Query")  # type: ignore[arg-type]
    assert caught.value.param == "input_type"
