"""Whether a model embeds or scores, and how a model that scores does it: head, labels, activation.

A model scores if its files say so (sentence-transformers' CrossEncoder, a class name that ends with
ForSequenceClassification) or, for Qwen3ForCausalLM, whose files look the same as an embedder's, if
its name or its chat template is a reranker's. `load_checkpoint(task=...)` decides where neither
says it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from hotbed.checkpoint.config import CONFIG_FILE, Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import MODULES_FILE, Module
from hotbed.checkpoint.records import BertConfig, HeadKind, PairForm, PoolingConfig, ScoreHead
from hotbed.checkpoint.sentence_transformers import SETTINGS_FILE, read_prompts
from hotbed.core.errors import invalid
from hotbed.core.model_info import Activation, Task

AskedTask = Literal["auto", "embed", "score"]

_CLASSIFIER = "ForSequenceClassification"
_CAUSAL = "Qwen3ForCausalLM"
_HEADS: dict[str, HeadKind] = {
    "BertForSequenceClassification": "pooler",
    "RobertaForSequenceClassification": "first_token",
    "XLMRobertaForSequenceClassification": "first_token",
    "Qwen3ForSequenceClassification": "last_token",
    _CAUSAL: "yes_no",
}
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
_TOKENIZER_SETTINGS_FILE = "tokenizer_config.json"
_CHAT_TEMPLATE_FILE = "chat_template.jinja"
# Of Qwen3-Reranker's system message.
_TEMPLATE_MARK = "Judge whether the Document"
_YES, _NO = "yes", "no"


def find_task(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
    asked: AskedTask,
) -> Task:
    """What the model does.

    Args:
        folder: of the model.
        transformer: of the transformer's own files.
        modules: of modules.json.
        architecture: of config.json.
        asked: ``auto``, or what it must be.

    Raises:
        HotbedError: INVALID_INPUT if the model cannot do what is asked.
    """
    found, is_sure = _found_task(folder, transformer, modules, architecture)
    if asked in ("auto", found) or (architecture.name == _CAUSAL and not is_sure):
        return found if asked == "auto" else asked
    raise invalid(
        f"model {folder.name!r} cannot be used for the task {asked!r}: by its files"
        f" ({architecture.name}) it can {found!r} only; models that score are"
        f" {', '.join(_HEADS)}",
        param="task",
    )


def _found_task(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
) -> tuple[Task, bool]:
    """(the task, whether it is certain)."""
    if modules is not None:
        return ("embed" if any(m.kind == "Pooling" for m in modules) else "score"), True
    if folder.has(SETTINGS_FILE):
        settings = read_json_object(folder.path / SETTINGS_FILE)
        if settings.get("model_type") == "CrossEncoder":
            return "score", True
    if architecture.name.endswith(_CLASSIFIER):
        return "score", True
    if architecture.name != _CAUSAL:
        return "embed", True
    name = folder.name.rstrip("/").rpartition("/")[2].lower()
    is_reranker = "rerank" in name or _has_reranker_template(transformer)
    return ("score" if is_reranker else "embed"), False


def read_head(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
) -> ScoreHead:
    """The head of a model that scores.

    Raises:
        HotbedError: INVALID_INPUT naming the field and what is supported.
    """
    path = transformer.path / CONFIG_FILE
    kind = _HEADS.get(architecture.name)
    if kind is None:
        raise unsupported(path, "architectures", [architecture.name], tuple(_HEADS))
    config = read_json_object(path)
    tokens = _yes_no_tokens(folder, transformer, modules) if kind == "yes_no" else None
    labels = ("relevance",) if kind == "yes_no" else _labels(transformer, config)
    form = _pair_form(folder, transformer, architecture, len(labels))
    return ScoreHead(
        kind=kind,
        labels=labels,
        activation=_activation(folder, transformer, config, len(labels)),
        yes_no_tokens=tokens,
        tied=bool(config.get("tie_word_embeddings", False)),
        token_types=2 if _has_token_types(transformer, architecture) else 1,
        pair_form=form,
        instruction=_instruction(folder, form),
    )


def head_pooling(head: ScoreHead) -> PoolingConfig:
    """The one token whose state the head reads."""
    is_last = head.kind in ("last_token", "yes_no")
    return PoolingConfig(pooling="last" if is_last else "cls", normalize=False)


def _labels(transformer: ModelFolder, config: dict[str, Any]) -> tuple[str, ...]:
    """Names by their index; two labels where the file says nothing, as `transformers` has it."""
    path = transformer.path / CONFIG_FILE
    raw = config.get("id2label")
    if raw is None:
        count = config.get("num_labels", 2)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise invalid(f"{path}: num_labels is {count!r}; it must be at least 1", "num_labels")
        return tuple(f"LABEL_{i}" for i in range(count))
    try:
        by_index = msgspec.convert(raw, dict[int, str], strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"{path}: id2label: {error}", param="id2label") from error
    if not by_index or sorted(by_index) != list(range(len(by_index))):
        raise invalid(
            f"{path}: id2label must name the labels 0, 1, … without a gap; it has"
            f" {sorted(by_index)}",
            param="id2label",
        )
    return tuple(by_index[i] for i in range(len(by_index)))


def _activation(
    folder: ModelFolder, transformer: ModelFolder, config: dict[str, Any], num_labels: int
) -> Activation:
    """What the files say, in sentence-transformers' order of places; else by labels and problem."""
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


def _yes_no_tokens(
    folder: ModelFolder, transformer: ModelFolder, modules: tuple[Module, ...] | None
) -> tuple[int, int]:
    """Ids of "yes" and "no": of the LogitScore module, else of the tokenizer's vocabulary."""
    score = next((m for m in modules or () if m.kind == "LogitScore"), None)
    if score is not None:
        path = folder.sub(score.path).file("config.json")
        raw = read_json_object(path)
        return _token_id(path, raw, "true_token_id"), _token_id(path, raw, "false_token_id")
    path = transformer.file("tokenizer.json")
    model = read_json_object(path).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    found = [vocab.get(word) if isinstance(vocab, dict) else None for word in (_YES, _NO)]
    if not all(isinstance(token, int) for token in found):
        raise invalid(
            f'{path}: "{_YES}" and "{_NO}" must be single tokens of its vocabulary: the scores of'
            " Qwen3-Reranker are their logits",
            param="model.vocab",
        )
    return cast("tuple[int, int]", tuple(found))


def _token_id(path: Path, raw: dict[str, Any], field: str) -> int:
    value = raw.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise invalid(
            f"{path}: {field} is {value!r}; it must be a token id: scores from the logit of one"
            " token alone are not supported",
            param=field,
        )
    return value


def _pair_form(
    folder: ModelFolder, transformer: ModelFolder, architecture: Architecture, num_labels: int
) -> PairForm:
    """How a query and a document become one sequence.

    Qwen3 with yes and no, and Qwen3 with one label (the same model with a converted head) take
    Qwen3-Reranker's chat template; a head that sentence-transformers trained on plain pairs and all
    others take the tokenizer's own pair.
    """
    if _HEADS[architecture.name] == "yes_no" or _has_reranker_template(transformer):
        return "qwen3_reranker"
    if architecture.family == "qwen3" and num_labels == 1 and not folder.has(SETTINGS_FILE):
        return "qwen3_reranker"
    return "tokenizer"


def _has_token_types(transformer: ModelFolder, architecture: Architecture) -> bool:
    """Whether pairs have token types: BERT's have, unless its tokenizer is said to give none."""
    config = architecture.config
    if not isinstance(config, BertConfig) or config.type_vocab_size < 2:
        return False
    if not transformer.has(_TOKENIZER_SETTINGS_FILE):
        return True
    settings = read_json_object(transformer.path / _TOKENIZER_SETTINGS_FILE)
    names = settings.get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def _instruction(folder: ModelFolder, form: PairForm) -> str | None:
    """The default prompt of the folder: the instruction of the template, which others have not."""
    prompts = read_prompts(folder, "score")
    prompt = prompts.by_name.get(prompts.default_name or "", "")
    if prompt and form != "qwen3_reranker":
        raise invalid(
            f"{folder.path / SETTINGS_FILE}: default_prompt_name is {prompts.default_name!r};"
            " prompts are supported for Qwen3-Reranker's template only",
            param="default_prompt_name",
        )
    return prompt or None


def _has_reranker_template(transformer: ModelFolder) -> bool:
    if transformer.has(_CHAT_TEMPLATE_FILE):
        text = (transformer.path / _CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
        return _TEMPLATE_MARK in text
    if transformer.has(_TOKENIZER_SETTINGS_FILE):
        settings = read_json_object(transformer.path / _TOKENIZER_SETTINGS_FILE)
        template = settings.get("chat_template")
        return isinstance(template, str) and _TEMPLATE_MARK in template
    return False


def check_chain(modules: tuple[Module, ...] | None, head: ScoreHead) -> None:
    """Refuse a chain of modules that is not the head's.

    Raises:
        HotbedError: INVALID_INPUT naming the chain.
    """
    has_logit_score = any(m.kind == "LogitScore" for m in modules or ())
    if modules is not None and has_logit_score != (head.kind == "yes_no"):
        raise invalid(
            f"{MODULES_FILE}: the modules are {' -> '.join(m.kind for m in modules)}, which does"
            f" not suit a head of kind {head.kind}; supported: Transformer for a"
            " …ForSequenceClassification, Transformer -> LogitScore for Qwen3ForCausalLM",
            param=MODULES_FILE,
        )
