"""Pages from rows: figures as they are, failures named, aims met or missed by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotbed.bench.report.aims import aims
from hotbed.bench.report.page import write_pages
from hotbed.bench.report.readme import write_readme
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


OLD = {"commit": "aaaaaaa", "run": "2026-11-30T10:00:00+00:00"}
NEW = {"commit": "bbbbbbb", "run": "2026-11-30T11:00:00+00:00"}


@pytest.mark.parametrize("newer_first", [True, False])
def test_what_was_measured_again_is_the_newer_run_alone(newer_first: bool, tmp_path: Path) -> None:
    """Also where it has fewer systems: two runs' figures never stand side by side."""
    old = [row("hotbed", p50_ms=7.0, **OLD), row("vllm", p50_ms=8.0, **OLD)]
    new = [row("hotbed", p50_ms=5.0, **NEW)]
    text = page_of(new + old if newer_first else old + new, tmp_path)
    assert "|  | hotbed | floor | hotbed / floor |" in text
    assert "| 1 × 128 | 5.00 / 2.00 | 0.25 |" in text
    assert "7.00" not in text
    assert "8.00" not in text
    assert (
        "## Measured again since\n\nNot shown here:\n\n"
        f"- {MODEL}, latency (offline) of 2026-11-30T10:00:00+00:00, commit aaaaaaa\n" in text
    )


def test_of_older_rows_without_a_run_the_later_commit_of_a_day_counts(tmp_path: Path) -> None:
    rows = [row("hotbed", p50_ms=7.0, commit="aaaaaaa"), row("vllm", commit="aaaaaaa")]
    text = page_of([*rows, row("hotbed", p50_ms=5.0, commit="bbbbbbb")], tmp_path)
    assert "| 1 × 128 | 5.00 / 2.00 | 0.25 |" in text
    assert "latency (offline) of 2026-11-30, commit aaaaaaa" in text


def test_tables_of_different_runs_on_a_page_say_of_which(tmp_path: Path) -> None:
    many = {"n": 100, "tokens": 512}
    rows = [
        row("hotbed", **OLD),
        row("hotbed", suite="throughput", **many, **OLD),
        row("hotbed", suite="throughput", way="clients", **many, **NEW),
    ]
    text = page_of(rows, tmp_path)
    assert "\nRun of 2026-11-30T10:00:00+00:00, commit aaaaaaa.\n" in text
    assert (
        "in process: run of 2026-11-30T10:00:00+00:00, commit aaaaaaa; client processes, token ids:"
        " run of 2026-11-30T11:00:00+00:00, commit bbbbbbb.\n" in text
    )
    assert "Not shown here" not in text


def test_a_failure_of_a_run_that_was_replaced_is_gone_with_it(tmp_path: Path) -> None:
    failed = {"suite": "start", "error": "no such kernel"}
    rows = [row("vllm", **failed, **OLD), row("hotbed", **OLD), row("hotbed", **NEW)]
    assert "no such kernel" not in page_of(rows, tmp_path)
    rows = [row("hotbed", **OLD), row("vllm", **failed, **NEW)]  # and it ended there
    text = page_of(rows, tmp_path)
    assert "no such kernel" in text
    assert "1.00 / 2.00" in text


def test_a_trial_with_tiny_shapes_is_no_result_of_the_model(tmp_path: Path) -> None:
    rows = [row("hotbed", p50_ms=7.0), row("hotbed", p50_ms=0.5, size="tiny", **NEW)]
    text = page_of(rows, tmp_path)
    assert "| 1 × 128 | 7.00 / 2.00 |" in text.partition(f"## {MODEL} (tiny)")[0]
    assert "| 1 × 128 | 0.50 / 2.00 |" in text.partition(f"## {MODEL} (tiny)")[2]


def test_a_page_of_a_processor_names_threads_and_no_driver(tmp_path: Path) -> None:
    text = page_of([row("hotbed", threads=2)], tmp_path)
    assert "2026-11-30; torch 2; threads 2; compute type bfloat16." in text


def test_a_p99_of_few_requests_is_marked(tmp_path: Path) -> None:
    text = page_of([row("hotbed", requests=99), row("vllm", requests=100)], tmp_path)
    assert "| 1 × 128 | 1.00 / 2.00† | 1.00 / 2.00 |" in text
    assert "† of fewer than 100 requests" in text


def test_a_floor_that_is_beaten_is_a_floor_measured_too_high(tmp_path: Path) -> None:
    text = page_of([row("hotbed", ratio_to_floor=0.55)], tmp_path)
    assert "| 0.25 | 0.55‡ |" in text
    assert "‡ faster than the floor" in text
    assert "‡" not in page_of([row("hotbed", ratio_to_floor=0.99)], tmp_path)


def test_a_plot_breaks_where_a_system_failed_and_says_so(tmp_path: Path) -> None:
    rows = [
        *(row("hotbed", tokens=n) for n in (128, 512, 4096)),
        row("vllm", tokens=128, different=True),
        row("vllm", tokens=512, error="it ended"),
        row("vllm", tokens=4096),
        row("tei", tokens=128, error="it ended"),
    ]
    page_of(rows, tmp_path)
    plot = (tmp_path / "out" / f"a-card-{MODEL}.svg").read_text()
    assert "vllm, rows differ, failed at 512" in plot
    assert "tei, failed at 128" in plot
    assert "hotbed, " not in plot


def test_throughput_is_held_to_the_floor_by_rate(tmp_path: Path) -> None:
    """Of four requests under way some end before all four could: half of the floor is no marvel."""
    cell = {"way": "clients", "n": 100, "tokens": 512, "concurrency": 4}
    rates = {"p50_ms": 100.0, "floor_ms": 200.0, "ratio_to_floor": 0.5, "seq_per_s": 1000.0}
    text = page_of([row("hotbed", suite="throughput", **cell, **rates)], tmp_path)
    assert "| 1,000 | 2,000 | 2.00 |" in text
    assert "| 200.0 | 2.00 | 0.99987 |" in text


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
        ("", "rows.jsonl is empty: its run ended before anything was measured"),
        (json.dumps(row("vllm", suite="speed")), "line 1: there is no suite 'speed'; there are la"),
        (json.dumps(row("vllm", error="x", p50_ms=1.0)), "line 1: .* as its outcome"),
        ('{"suite": "latency", "size": "full"}', "with no system, version, model, device"),
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


def test_the_pages_are_what_the_rows_say(tmp_path: Path) -> None:
    """`hotbed bench report bench/results/side-by-side-*.jsonl` writes them."""
    for page in write_pages(sorted((ROOT / "bench/results").glob("side-by-side-*")), tmp_path):
        assert page.read_text() == (ROOT / "docs" / "benchmarks" / page.name).read_text()


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
