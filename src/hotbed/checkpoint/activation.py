"""What a model that scores does to its logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hotbed.checkpoint.config_fields import CONFIG_FILE
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.sentence_transformers import SETTINGS_FILE
from hotbed.core.errors import invalid
from hotbed.core.model_info import Activation

_ACTIVATIONS: dict[str, Activation] = {
    "Sigmoid": "sigmoid",
    "Identity": "none",
    "Softmax": "softmax",
}
_BY_PROBLEM: dict[str | None, Activation] = {
    None: "softmax",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "none",
}


def read_activation(
    folder: ModelFolder, transformer: ModelFolder, config: dict[str, Any], num_labels: int
) -> Activation:
    """What the files say, in sentence-transformers' order of places; else by labels and problem.

    One label gets sigmoid. Of several, labels that exclude each other get softmax, labels that do
    not (``multi_label_classification``) sigmoid.

    Args:
        folder: of the model.
        transformer: of the transformer's own files.
        config: its config.json.
        num_labels: of the head.

    Raises:
        HotbedError: INVALID_INPUT naming the field and what is supported.
    """
    for path, field, value in _stated_activations(folder, transformer, config):
        if value is None:
            continue
        name = value.rpartition(".")[2] if isinstance(value, str) else None
        if name not in _ACTIVATIONS:
            raise unsupported(
                path, field, value, tuple(f"torch.nn.{name}" for name in _ACTIVATIONS)
            )
        activation = _ACTIVATIONS[name]
        if activation == "softmax" and num_labels == 1:
            raise invalid(
                f"{path}: {field} is {value!r} for one label, which is 1.0 for every text;"
                " supported for one label: torch.nn.Sigmoid, torch.nn.Identity",
                param=field,
            )
        return activation
    if num_labels == 1:
        return "sigmoid"
    problem = config.get("problem_type")
    if problem not in _BY_PROBLEM:
        known = tuple(name for name in _BY_PROBLEM if name is not None)
        raise unsupported(transformer.path / CONFIG_FILE, "problem_type", problem, known)
    return _BY_PROBLEM[problem]


def _stated_activations(
    folder: ModelFolder, transformer: ModelFolder, config: dict[str, Any]
) -> list[tuple[Path, str, object]]:
    """(file, field, value) of each place that may state the activation."""
    path = transformer.path / CONFIG_FILE
    nested = config.get("sentence_transformers")
    old = "sbert_ce_default_activation_function"
    stated: list[tuple[Path, str, object]] = [
        (
            path,
            "sentence_transformers.activation_fn",
            nested.get("activation_fn") if isinstance(nested, dict) else None,
        ),
        (path, old, config.get(old)),
    ]
    if folder.has(SETTINGS_FILE):
        settings = folder.path / SETTINGS_FILE
        value = read_json_object(settings).get("activation_fn")
        stated.insert(0, (settings, "activation_fn", value))
    return stated
