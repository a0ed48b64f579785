"""A container's CPU quota counts, not the machine's cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.serve.cores import num_usable_cores


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("6400000 100000\n", 8),
    ],
)
def test_quota_cuts_the_number_of_cores(
    content: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    file = tmp_path / "cpu.max"
    file.write_text(content)
    assert num_usable_cores(file) == expected


def test_without_a_quota_file_all_cores_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 7})
    assert num_usable_cores(tmp_path / "none") == 3
