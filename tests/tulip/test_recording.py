"""Traffic that was recorded is what came, and can be replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.scheduler_traffic import read_trace
from hotbed.core.errors import HotbedError
from hotbed.tulip import recording as module
from hotbed.tulip.recording import Recording
from hotbed.wire.client import TulipClient
from tests.tulip.conftest import WAIT_S, StartTulip


async def test_what_comes_is_written_down_for_the_bench(
    start_tulip: StartTulip, tmp_path: Path
) -> None:
    tulip = await start_tulip(record_traffic=tmp_path / "new" / "folder", max_item_tokens=512)
    stream = tulip.open_stream()
    await stream.send({1: [[1, 2, 3], [4]]})
    await stream.receive(1)
    async with TulipClient(tulip.address) as client:
        await client.embed([[5] * 100], timeout_s=WAIT_S)
        with pytest.raises(HotbedError, match="limit"):
            await client.embed([[5] * 300, [5] * 300], timeout_s=WAIT_S)  # refused, but it came
    tulip.stop.set()
    assert await tulip.exit_code == 0
    (path,) = (tmp_path / "new" / "folder").glob("traffic-*.jsonl")
    found = read_trace(path)
    assert [(a.kind, a.lengths) for a in found] == [
        ("query", (3, 1)),
        ("document", (100,)),
        ("document", (300, 300)),
    ]
    assert 0 < found[0].at_s <= found[1].at_s <= found[2].at_s < WAIT_S
    assert found[0].client != found[1].client == found[2].client


def test_a_recording_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 3)
    recording = Recording(tmp_path)
    for _ in range(5):
        recording.add("a", np.array([9000], dtype=np.int32))
    assert [a.kind for a in read_trace(recording.path)] == ["long"] * 3
    recording.close()


def test_a_full_disk_ends_the_recording_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording(tmp_path)
    recording._file.close()
    recording._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    for _ in range(2000):  # more than is buffered
        recording.add("a", np.array([1], dtype=np.int32))
    recording.close()
    assert caplog.text.count("ends here: [Errno 28]") == 1
