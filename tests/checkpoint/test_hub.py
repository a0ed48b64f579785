"""Hub models: nothing but the needed files is fetched, and offline means offline."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import ErrorCode
from tests.checkpoint.errors import refused
from tests.checkpoint.fake_hub import COMMIT, FakeHub, lay_cache
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, write_json

NAME = "some-org/some-model"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> Any:
        raise AssertionError("a network call though offline")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


Online = Callable[[Path], FakeHub]


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Online:
    """Put a repository on a fake hub, online."""

    def connect(repository: Path) -> FakeHub:
        hub = FakeHub(repository, tmp_path / "cache")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
        return hub

    return connect


@pytest.mark.usefixtures("no_network")
class TestOffline:
    def test_a_complete_cache_is_enough(self, cache: Path, bert_folder: Path) -> None:
        snapshot = lay_cache(cache, NAME, bert_folder)
        checkpoint = load_checkpoint(NAME, offline=True)
        assert (checkpoint.source, checkpoint.folder) == ("hub", snapshot)
        assert checkpoint.tensors

    def test_the_environment_is_heard(
        self, cache: Path, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        lay_cache(cache, NAME, bert_folder)
        assert load_checkpoint(NAME).source == "hub"

    def test_a_model_that_is_not_cached_says_what_to_do(self, cache: Path) -> None:
        with refused(NAME, "offline", "HF_HUB_OFFLINE", code=ErrorCode.MODEL_NOT_FOUND):
            load_checkpoint(NAME, offline=True)

    @pytest.mark.parametrize(
        "missing",
        ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"],
    )
    def test_a_partial_cache_names_the_missing_file(
        self, cache: Path, bert_folder: Path, missing: str
    ) -> None:
        snapshot = lay_cache(cache, NAME, bert_folder)
        (snapshot / missing).resolve().unlink()  # a dangling link, as a cut download leaves it
        with refused(Path(missing).name, "missing", "network"):
            load_checkpoint(NAME, offline=True)

    def test_an_empty_cache_folder_is_not_a_model(self, cache: Path, bert_folder: Path) -> None:
        snapshot = lay_cache(cache, NAME, bert_folder)
        shutil.rmtree(snapshot)
        snapshot.mkdir()
        with refused("config.json is missing", "network"):
            load_checkpoint(NAME, offline=True)


class TestOnline:
    def test_only_what_is_read_is_fetched(self, tmp_path: Path, online: Online) -> None:
        """No pickle, no code, no second copy of the weights, no other format."""
        repository = make_bert(tmp_path / "repository")
        decoys = {
            "pytorch_model.bin",
            "model.pt",
            "modeling.py",
            "README.md",
            "onnx/model.onnx",
            "openvino/openvino_model.bin",
            "model.fp16.safetensors",
            "old/model.safetensors",
            "1_Pooling/model.safetensors",
            "2_Dense/pytorch_model.bin",
        }
        for decoy in decoys:
            (repository / decoy).parent.mkdir(exist_ok=True)
            (repository / decoy).write_bytes(b"decoy")
        hub = online(repository)
        checkpoint = load_checkpoint(NAME)
        assert checkpoint.source == "hub"
        assert "model.safetensors" in hub.fetched
        assert not hub.fetched & decoys

    def test_weights_of_dense_modules_are_fetched(self, tmp_path: Path, online: Online) -> None:
        """The pattern for settings does not fetch them."""
        repository = make_bert(tmp_path / "repository", dense=[(96, "activation.Tanh", True)])
        hub = online(repository)
        checkpoint = load_checkpoint(NAME)
        assert "2_Dense/model.safetensors" in hub.fetched
        assert checkpoint.dense[0].tensors

    def test_shards_are_fetched_by_the_index(self, tmp_path: Path, online: Online) -> None:
        repository = make_qwen3(tmp_path / "repository", sharded=True)
        (repository / "model.safetensors").write_bytes(b"stray")
        hub = online(repository)
        assert load_checkpoint(NAME).tensors
        assert "model-00002-of-00002.safetensors" in hub.fetched
        assert "model.safetensors" not in hub.fetched

    def test_weights_and_settings_are_of_one_commit(self, tmp_path: Path, online: Online) -> None:
        """A push between the two downloads must not mix two versions."""
        hub = online(make_bert(tmp_path / "repository"))
        load_checkpoint(NAME, revision="v2")
        assert hub.revisions == ["v2", COMMIT]

    def test_without_weights_none_are_fetched(self, tmp_path: Path, online: Online) -> None:
        hub = online(make_bert(tmp_path / "repository"))
        checkpoint = load_checkpoint(NAME, weights=False)
        assert not checkpoint.tensors
        assert not [name for name in hub.fetched if name.endswith(".safetensors")]

    def test_a_transformer_in_a_folder_of_its_own(self, tmp_path: Path, online: Online) -> None:
        """As old sentence-transformers repositories have it."""
        repository = make_bert(tmp_path / "repository")
        inner = repository / "0_Transformer"
        inner.mkdir()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.move(repository / name, inner / name)
        for name in ("sentence_bert_config.json", "model.safetensors"):
            shutil.move(repository / name, inner / name)
        modules = "sentence_transformers.models."
        write_json(
            repository / "modules.json",
            [
                {"idx": 0, "name": "0", "path": "0_Transformer", "type": modules + "Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": modules + "Pooling"},
            ],
        )
        hub = online(repository)
        checkpoint = load_checkpoint(NAME)
        assert "0_Transformer/model.safetensors" in hub.fetched
        assert checkpoint.max_tokens == 64
        assert checkpoint.tokenizer.tokenizer_json.parent.name == "0_Transformer"

    @pytest.mark.parametrize("weights", [True, False])
    def test_modules_in_folders_of_any_name(
        self, weights: bool, tmp_path: Path, online: Online
    ) -> None:
        """Only 1_Pooling and its like were fetched: the pooling's settings were called missing."""
        repository = make_bert(tmp_path / "repository", dense=[(48, "activation.Tanh", True)])
        shutil.move(repository / "1_Pooling", repository / "pooling")
        shutil.move(repository / "2_Dense", repository / "modules_dense")
        text = (repository / "modules.json").read_text()
        text = text.replace("1_Pooling", "pooling").replace("2_Dense", "modules_dense")
        (repository / "modules.json").write_text(text)
        hub = online(repository)
        assert load_checkpoint(NAME, weights=weights).dimensions == 48
        assert ("modules_dense/model.safetensors" in hub.fetched) == weights

    def test_a_repository_with_pickles_only_is_refused(
        self, tmp_path: Path, online: Online
    ) -> None:
        repository = make_bert(tmp_path / "repository")
        (repository / "model.safetensors").rename(repository / "pytorch_model.bin")
        online(repository)
        with refused(
            "model.safetensors is missing",
            "safetensors only",
            f"hf download {NAME}",
            "convert_weights",
        ):
            load_checkpoint(NAME)

    def test_a_module_that_is_not_supported_is_refused_before_the_weights_are_fetched(
        self, tmp_path: Path, online: Online
    ) -> None:
        repository = make_bert(tmp_path / "repository")
        write_json(
            repository / "modules.json", [{"path": "", "type": "sentence_transformers.models.CLIP"}]
        )
        hub = online(repository)
        with refused("models.CLIP"):
            load_checkpoint(NAME)
        assert "model.safetensors" not in hub.fetched


def _response(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "http://hub.test/api"))


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (errors.GatedRepoError("x", response=_response(403)), ErrorCode.MODEL_NOT_FOUND, "gated"),
        (
            errors.RepositoryNotFoundError("x", response=_response(401)),
            ErrorCode.MODEL_NOT_FOUND,
            "no such model",
        ),
        (
            errors.RevisionNotFoundError("x", response=_response(404)),
            ErrorCode.MODEL_NOT_FOUND,
            "no revision 'v2'",
        ),
        (errors.LocalEntryNotFoundError("hub down"), ErrorCode.UNAVAILABLE, "hub down"),
        (
            errors.HfHubHTTPError("busy", response=_response(503)),
            ErrorCode.UNAVAILABLE,
            "HfHubHTTPError",
        ),
        (httpx.ProxyError("bad proxy"), ErrorCode.UNAVAILABLE, "bad proxy"),
        (errors.HFValidationError("two dashes"), ErrorCode.INVALID_INPUT, "two dashes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_failure_of_the_hub_is_told_apart(
    error: Exception, code: ErrorCode, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with refused(NAME, says, code=code):
        load_checkpoint(NAME, revision="v2", offline=False)


def test_the_index_of_a_partial_cache_names_the_missing_shard(cache: Path, tmp_path: Path) -> None:
    model = make_qwen3(tmp_path / "m", sharded=True)
    (model / "model-00002-of-00002.safetensors").unlink()
    lay_cache(cache, NAME, model)
    with refused("model-00002-of-00002.safetensors is missing", "network"):
        load_checkpoint(NAME, offline=True)


def test_a_config_edited_in_the_cache_is_read(cache: Path, tmp_path: Path) -> None:
    """The cache is read as it is: no second copy is kept anywhere."""
    model = make_bert(tmp_path / "m")
    edit_json(model / "sentence_bert_config.json", max_seq_length=17)
    lay_cache(cache, NAME, model)
    assert load_checkpoint(NAME, offline=True).max_tokens == 17
