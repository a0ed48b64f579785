"""Pages from rows: figures as they are, failures named, aims met or missed by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotbed.bench.report.aims import aims
from hotbed.bench.report.page import write_pages
from hotbed.bench.report.readme import write_readme
from hotbed.bench.report.results import latest
from hotbed.core.errors import HotbedError
from tests.test_cli import run

ROOT = Path(__file__).parents[2]
MODEL = "pplx-embed-0.6b"


def row(system: str, suite: str = "latency", **fields: Any) -> dict[str, Any]:
    cell = {"n": 1, "tokens": 128, "concurrency": 1, "way": "offline"}
    figures = {
        "requests": 100,
        "p50_ms": 1.0,
        "p90_ms": 1.5,
        "p99_ms": 2.0,
        "max_ms": 3.0,
        "seq_per_s": 1000.0,
        "tokens_per_s": 128000,
        "tflops": 5.0,
        "floor_ms": 0.25,
        "ratio_to_floor": 4.0,
        "cosine_min": 0.99987,
    }
    return {
        "suite": suite,
        "system": system,
        "version": "1.2",
        "model": MODEL,
        **cell,
        **({} if {"error", "left_out", "absent"} & set(fields) else figures),
        "settings": f"how {system} ran",
        "size": "full",
        "dtype": "bfloat16",
        "device": "A Card",
        "torch": "2",
        "date": "2026-11-30",
        **fields,
    }


def page_of(rows: list[dict[str, Any]], tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    (page,) = write_pages([file], tmp_path / "out")
    assert page.name == "a-card.md"
    return page.read_text()


def test_a_page_shows_figures_floor_and_settings(tmp_path: Path) -> None:
    text = page_of([row("vllm", p50_ms=5.0, p99_ms=7.25), row("hotbed")], tmp_path)
    assert "|  | hotbed | vllm | floor | hotbed / floor |" in text
    assert "| 1 × 128 | 1.00 / 2.00 | 5.00 / 7.25 | 0.25 | 4.00 |" in text
    assert "- **vllm 1.2**: how vllm ran" in text
    assert "| 0.99987 |" in text
    plot = (tmp_path / "out" / f"a-card-{MODEL}.svg").read_text()
    assert f"![{MODEL}](a-card-{MODEL}.svg)" in text
    assert "floor of the device" in plot
    assert "vllm" in plot


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [row("hotbed"), row("vllm")]
    page_of(rows, tmp_path)
    first = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    page_of(rows, tmp_path)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == first


def test_a_failure_is_never_a_number(tmp_path: Path) -> None:
    failed = row("vllm", error="its process ended\nwith exit code 7", log_tail=["out of memory"])
    rows = [row("hotbed"), failed, row("tei", suite="start", absent="not installed here")]
    text = page_of(rows, tmp_path)
    assert "| 1 × 128 | 1.00 / 2.00 | **failed** | 0.25 | 4.00 |" in text
    assert "vllm, pplx-embed-0.6b, latency 1 × 128 (in process): failed.** its process" in text
    assert "out of memory" in text
    assert "- tei: not installed here" in text
    assert not aims(rows, MODEL) or all("vLLM" not in aim.what for aim in aims(rows, MODEL))


def test_what_was_left_out_or_differs_is_marked(tmp_path: Path) -> None:
    rows = [
        row("hotbed"),
        row("vllm", different=True),
        row("infinity", left_out="time was over"),
    ]
    text = page_of(rows, tmp_path)
    assert "1.00 / 2.00 | 1.00 / 2.00 (different) | left out |" in text
    assert "left out, time was over" in text


def test_of_rows_measured_again_the_latest_counts() -> None:
    assert [r["p50_ms"] for r in latest([row("vllm"), row("hotbed"), row("vllm", p50_ms=9.0)])] == [
        9.0,
        1.0,
    ]


def test_aims_say_met_or_by_how_much_they_are_missed() -> None:
    busy = {"suite": "concurrency", "way": "http", "tokens": 512, "concurrency": 16}
    many = {"suite": "throughput", "n": 100, "tokens": 512}
    rows = [
        row("hotbed", p50_ms=1.0),
        row("vllm", p50_ms=5.0),
        row("hotbed", p99_ms=30.0, **busy),
        row("vllm", p99_ms=45.0, **busy),
        row("hotbed", seq_per_s=1040.0, **many),
        row("vllm", seq_per_s=800.0, **many),
    ]
    found = {aim.what: (round(aim.times, 3), aim.verdict) for aim in aims(rows, MODEL)}
    assert "one text of 128 tokens, p50, beside what Perplexity published" not in found
    rows = [r | {"device": "NVIDIA H200"} for r in rows]  # the card of what was published
    found = {aim.what: (round(aim.times, 3), aim.verdict) for aim in aims(rows, MODEL)}
    assert found == {
        "one text of 128 tokens, p50, beside vLLM": (5.0, "met"),
        "one text of 128 tokens, p50, beside what Perplexity published": (1.88, "missed by 6%"),
        "16 at a time over HTTP, p99, beside vLLM": (1.5, "missed by 25%"),
        "throughput 100 x 512, one process, beside vLLM": (1.3, "met"),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}\n", "line 1 is no row of the bench"),
        ('{"suite": "latency"}\nnonsense\n', "line 2 is no JSON"),
        ('{"suite": "engine"}\n', "no rows of hotbed bench"),
    ],
)
def test_files_that_hold_no_rows_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(HotbedError, match=message):
        write_pages([file], tmp_path)


def test_the_readmes_tables_are_what_the_rows_say(tmp_path: Path) -> None:
    """Nobody edits them by hand; `hotbed bench report --readme README.md` writes them."""
    copy = tmp_path / "README.md"
    copy.write_text((ROOT / "README.md").read_text())
    assert write_readme(copy, ROOT / "bench" / "results") == ["cpu", "h200", "side-by-side"]
    assert copy.read_text() == (ROOT / "README.md").read_text()


def test_the_headline_comes_from_the_rows_of_a_gpu(tmp_path: Path) -> None:
    rows = [row("hotbed", p50_ms=1.02), row("vllm", p50_ms=10.9)]
    (tmp_path / "side-by-side-a-card.jsonl").write_text("\n".join(map(json.dumps, rows)))
    readme = tmp_path / "README.md"
    readme.write_text("<!-- numbers:side-by-side -->\nold\n<!-- /numbers -->\n")
    write_readme(readme, tmp_path)
    assert f"| {MODEL}, 1 × 128, p50 | 1.02 ms | 10.90 ms | 10.7 |" in readme.read_text()
    assert "old" not in readme.read_text()


def test_a_place_for_an_unknown_table_is_an_error(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- numbers:gpu -->\n<!-- /numbers -->\n")
    with pytest.raises(HotbedError, match="table 'gpu'"):
        write_readme(readme, tmp_path)


def test_report_needs_something_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "report") == 2
    assert "give files of rows, or --readme" in capsys.readouterr().err
