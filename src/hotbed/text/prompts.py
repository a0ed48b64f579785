"""Which prefix goes before the inputs of a request."""

from __future__ import annotations

from typing import Literal

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import invalid

InputType = Literal["query", "document", "classification", "clustering", "similarity"]

# The names that sentence-transformers' encode_query and encode_document look for, in their order;
# for the other types the names that model files have for them.
_NAMES_BY_INPUT_TYPE: dict[InputType, tuple[str, ...]] = {
    "query": ("query", "retrieval.query"),
    "document": ("document", "passage", "corpus", "retrieval.passage"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering", "separation"),
    "similarity": ("similarity", "STS", "text-matching"),
}


def resolve_prompt(
    prompts: Prompts, *, prompt_name: str | None, input_type: InputType | None
) -> str:
    """Text to put before every input, possibly empty.

    Args:
        prompts: the model's.
        prompt_name: one of the model's names, taken as it is.
        input_type: takes the model's prompt for such inputs; a model that has none adds nothing,
            also where it has a default prompt, as in sentence-transformers.

    With neither, the model's default prompt applies if it has one.

    Raises:
        HotbedError: INVALID_INPUT if the name is unknown, the input type is not one of the five,
            or both were given.
    """
    if prompt_name is not None and input_type is not None:
        raise invalid("Give prompt_name or input_type, not both.", "prompt_name")
    if prompt_name is not None:
        if prompt_name not in prompts.by_name:
            raise invalid(f"prompt_name is unknown: {_names(prompts)}.", "prompt_name")
        return prompts.by_name[prompt_name]
    if input_type is not None:
        if input_type not in _NAMES_BY_INPUT_TYPE:
            known = ", ".join(f'"{name}"' for name in _NAMES_BY_INPUT_TYPE)
            raise invalid(f"input_type must be one of {known}.", "input_type")
        for name in _NAMES_BY_INPUT_TYPE[input_type]:
            if name in prompts.by_name:
                return prompts.by_name[name]
        return ""
    return "" if prompts.default_name is None else prompts.by_name[prompts.default_name]


def _names(prompts: Prompts) -> str:
    if not prompts.by_name:
        return "the model has no prompts"
    return f"the model has {', '.join(repr(name) for name in sorted(prompts.by_name))}"
