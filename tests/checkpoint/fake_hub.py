"""A model hub without a network: a cache as huggingface_hub lays it, and a repository to fetch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from huggingface_hub.utils import filter_repo_objects

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def lay_cache(cache: Path, name: str, model: Path) -> Path:
    """Put `model` into the hub cache as revision main of `name`; returns the snapshot folder."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    blobs = repository / "blobs"
    blobs.mkdir()
    snapshot = repository / "snapshots" / COMMIT
    for number, file in enumerate(p for p in sorted(model.rglob("*")) if p.is_file()):
        blob = blobs / f"{number:040x}"
        shutil.copyfile(file, blob)
        link = snapshot / file.relative_to(model)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


class FakeHub:
    """Stands in for `huggingface_hub.snapshot_download`: copies what the patterns ask for."""

    def __init__(self, repository: Path, cache: Path) -> None:
        self.repository = repository
        self.snapshot = cache / "snapshots" / COMMIT
        self.revisions: list[str | None] = []

    def snapshot_download(
        self,
        repo_id: str,
        *,
        revision: str | None = None,
        allow_patterns: list[str] | None = None,
        local_files_only: bool = False,
    ) -> str:
        assert not local_files_only, "an online load must ask the hub"
        self.revisions.append(revision)
        self.snapshot.mkdir(parents=True, exist_ok=True)
        names = [
            p.relative_to(self.repository).as_posix()
            for p in self.repository.rglob("*")
            if p.is_file()
        ]
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            target = self.snapshot / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.repository / name, target)
        return str(self.snapshot)

    @property
    def fetched(self) -> set[str]:
        """Names of all files fetched so far."""
        found = (p for p in self.snapshot.rglob("*") if p.is_file())
        return {p.relative_to(self.snapshot).as_posix() for p in found}
