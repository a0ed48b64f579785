"""How a model that scores does it: its head, labels and activation, and the form of its pairs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import msgspec

from hotbed.checkpoint.activation import read_activation
from hotbed.checkpoint.config import MODEL_TYPES
from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import MODULES_FILE, Module
from hotbed.checkpoint.records import BertConfig, HeadKind, PairForm, Pooling, ScoreHead
from hotbed.checkpoint.reranker_template import TOKENIZER_SETTINGS_FILE, reranker_template
from hotbed.checkpoint.sentence_transformers import SETTINGS_FILE, read_prompts
from hotbed.core.errors import invalid

CAUSAL: dict[str, PairForm] = {
    "Qwen3ForCausalLM": "qwen3_reranker",
    "Qwen2ForCausalLM": "mxbai_reranker",
}
"""Language models that are rerankers too, and the template of those that are."""
HEADS: dict[str, HeadKind] = {
    name: kind for known in MODEL_TYPES.values() for name, kind in known.heads.items()
}
"""By architecture: the models that score."""
_YES_NO: dict[PairForm, tuple[str, str]] = {
    "qwen3_reranker": ("yes", "no"),
    "mxbai_reranker": ("1", "0"),
}
_TEMPLATES: dict[PairForm, str] = {
    "qwen3_reranker": "qwen3-reranker",
    "mxbai_reranker": "mxbai-rerank",
}
"""By what their models' names say."""
_MODERNBERT_EPS = 1e-5  # transformers' norm_eps
_log = logging.getLogger(__name__)


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
    kind = HEADS.get(architecture.name)
    if kind is None:
        raise unsupported(path, "architectures", [architecture.name], tuple(HEADS))
    config = read_json_object(path)
    labels = ("relevance",) if kind == "yes_no" else _labels(transformer, config)
    form = _pair_form(folder, transformer, architecture, len(labels))
    tokens = _yes_no_tokens(folder, transformer, modules, form) if kind == "yes_no" else None
    return ScoreHead(
        kind=kind,
        pooling=_pooling(path, kind, config),
        labels=labels,
        activation=read_activation(folder, transformer, config, len(labels)),
        yes_no_tokens=tokens,
        **_modernbert_fields(path, config) if kind == "modernbert" else {},
        tied=kind == "yes_no" and bool(config.get("tie_word_embeddings", False)),
        token_types=2 if _has_token_types(transformer, architecture) else 1,
        pair_form=form,
        instruction=_instruction(folder, form),
    )


def _pooling(path: Path, kind: HeadKind, config: dict[str, Any]) -> Pooling:
    """The states that the head reads: the first token's, a decoder's last, or what ModernBERT's
    file says.
    """
    if kind in ("decoder", "yes_no"):
        return "last"
    pooling = config.get("classifier_pooling", "cls") if kind == "modernbert" else "cls"
    if pooling not in ("cls", "mean"):
        raise unsupported(path, "classifier_pooling", pooling, ("cls", "mean"))
    return cast("Pooling", pooling)


def _modernbert_fields(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    activation = config.get("classifier_activation", "gelu")
    if activation != "gelu":
        raise unsupported(path, "classifier_activation", activation, ("gelu",))
    return {
        "dense_bias": config.get("classifier_bias", False) is True,
        "norm_eps": config.get("norm_eps", _MODERNBERT_EPS),
    }


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


def _yes_no_tokens(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    form: PairForm,
) -> tuple[int, int]:
    """Ids of "yes" and "no", or of the words that stand for them: of the LogitScore module, else of
    the tokenizer's vocabulary.
    """
    score = next((m for m in modules or () if m.kind == "LogitScore"), None)
    if score is not None:
        path = folder.sub(score.path).file("config.json")
        raw = read_json_object(path)
        return _token_id(path, raw, "true_token_id"), _token_id(path, raw, "false_token_id")
    path = transformer.file("tokenizer.json")
    model = read_json_object(path).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    yes, no = _YES_NO[form]
    found = [vocab.get(word) if isinstance(vocab, dict) else None for word in (yes, no)]
    if not all(isinstance(token, int) for token in found):
        raise invalid(
            f'{path}: "{yes}" and "{no}" must be single tokens of its vocabulary: the scores of'
            " such rerankers are their logits",
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
    Qwen3-Reranker's chat template, Qwen2 with 1 and 0 that of mxbai-rerank-v2; a head that
    sentence-transformers trained on plain pairs and all others take the tokenizer's own pair.
    """
    stated = reranker_template(transformer)
    if stated is not None:
        return stated
    if architecture.name in CAUSAL:
        form = CAUSAL[architecture.name]
        if _TEMPLATES[form] not in folder.name.lower():
            _log.warning(
                "%s: its files do not say in which template it scores; it gets that of %s",
                folder.name, _TEMPLATES[form],
            )  # fmt: skip
        return form
    if architecture.name.startswith("Qwen3") and num_labels == 1 and not folder.has(SETTINGS_FILE):
        return "qwen3_reranker"
    return "tokenizer"


def _has_token_types(transformer: ModelFolder, architecture: Architecture) -> bool:
    """Whether pairs have token types: BERT's and ELECTRA's have, unless their tokenizer gives none.

    Its relatives' tokenizers give none, whatever the size of the table of types.
    """
    config = architecture.config
    if not isinstance(config, BertConfig) or config.type_vocab_size < 2:
        return False
    if HEADS[architecture.name] not in ("bert", "electra"):
        return False
    if not transformer.has(TOKENIZER_SETTINGS_FILE):
        return True
    settings = read_json_object(transformer.path / TOKENIZER_SETTINGS_FILE)
    names = settings.get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def _instruction(folder: ModelFolder, form: PairForm) -> str | None:
    """The default prompt of the folder: the instruction of the template, which others have not."""
    prompts = read_prompts(folder, "score")
    prompt = prompts.by_name.get(prompts.default_name or "", "")
    if prompt and form == "tokenizer":
        raise invalid(
            f"{folder.path / SETTINGS_FILE}: default_prompt_name is {prompts.default_name!r};"
            f" prompts are supported for the templates of {' and '.join(_TEMPLATES.values())} only",
            param="default_prompt_name",
        )
    return prompt or None


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
            f" …ForSequenceClassification, Transformer -> LogitScore for {', '.join(CAUSAL)}",
            param=MODULES_FILE,
        )
