"""A whole run with systems that fail in every way: each failure is named, none becomes a number."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from hotbed.bench import run, start
from hotbed.bench.cost import Ceilings, Cost
from hotbed.bench.options import BenchOptions
from hotbed.bench.servers import Server, ServerSpec, running
from hotbed.bench.service import free_port
from hotbed.bench.subjects import Device, Model
from hotbed.bench.systems import SYSTEMS, System
from hotbed.core.errors import HotbedError

ROOT = Path(__file__).parents[2]
WORDS = [f"word{i}" for i in range(200)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the bench on these systems of `tests.bench.faulty`; gives the exit code and the rows."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = tmp_path / "texts.txt"
    texts.write_text(" ".join(WORDS[i * i % 200] for i in range(3000)))
    model = Model(
        name="a-model",
        folder=str(tmp_path),
        task="embed",
        max_tokens=64,
        tokenizer=str(tmp_path / "tokenizer.json"),
        random_weights=True,
        cost=Cost(1000, 1000, 8, causal=False),
    )
    device = Device("cpu", "a CPU", None, "0", "float32", Ceilings(1e9, 1e9, 4))
    monkeypatch.setattr(run, "prepare", lambda *_: (device, [model]))
    working = System("hotbed", "tests.bench.faulty", "tests.bench.faulty:Working")
    monkeypatch.setitem(SYSTEMS, "hotbed", working)
    monkeypatch.setattr(start, "REFERENCE", working)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")

    def measure(*names: str, **options: Any) -> tuple[int, list[dict[str, Any]]]:
        for name in names:
            monkeypatch.setitem(
                SYSTEMS, name, System(name, "tests.bench.faulty", f"tests.bench.faulty:{name}")
            )
        defaults: dict[str, Any] = {
            "suite": ("latency", "scoring"),
            "size": "tiny",
            "texts": texts,
            "seconds": 0.05,
            "rounds": 2,
            "warm_up_s": 0.0,
            "call_timeout_s": 3.0,
        }
        out = tmp_path / "rows.jsonl"
        code = run.run(
            BenchOptions(**({"systems": ("hotbed", *names), "out": out} | defaults | options))
        )
        return code, [json.loads(line) for line in out.read_text().splitlines()]

    return measure


def faulty_server(how: str, after: int) -> Any:
    """Makes a server that fails so once it has answered this often."""

    def make(spec: ServerSpec) -> Server:
        port = free_port()
        tokenizer = str(Path(spec.folder) / "tokenizer.json")
        module = ("-m", "tests.bench.faulty_server")
        command = (spec.python, *module, str(port), tokenizer, how, str(after))
        return replace(running(f"http://127.0.0.1:{port}"), commands=(command,))

    return make


def of(rows: list[dict[str, Any]], system: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["system"] == system]


def test_systems_that_work_give_numbers_and_exit_code_0(bench: Any) -> None:
    code, rows = bench("Working")
    assert code == 0
    assert [(r["suite"], r["n"], r["tokens"]) for r in of(rows, "Working")] == [
        ("latency", 1, 8),
        ("latency", 1, 32),
        ("scoring", 3, 32),
    ]
    for row in rows:
        assert row["requests"] >= 2
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["seq_per_s"] > 0
        # The floor of one pass: 1000 weights of 4 bytes, or 2 FLOPs each a token, and attention.
        flops = 2 * 1000 * row["n"] * row["tokens"] + 4 * row["n"] * row["tokens"] ** 2 * 8
        assert row["floor_ms"] == pytest.approx(max(4000, flops) / 1e9 * 1e3, abs=1e-4)
        assert row["cosine_min"] == row["cosine_reference"] == 1.0


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Ends", "exit code 7"),
        ("IsKilled", "exit code -9"),
        ("Hangs", "no answer to 'warm-up' within 3 s"),
        ("TooFew", "came back, ["),
        ("GivesNaN", "is not finite"),
        ("Raises", "ValueError: too long for me"),
    ],
)
def test_a_system_that_fails_while_it_is_timed_is_an_error_not_a_number(
    name: str, error: str, bench: Any
) -> None:
    code, rows = bench(name)
    assert code == 1
    found = of(rows, name)
    assert [(r["suite"], r["tokens"]) for r in found] == [
        ("latency", 8),
        ("latency", 32),
        ("scoring", 32),
    ]
    for row in found:
        assert error in row["error"]
        assert "p50_ms" not in row
        assert "seq_per_s" not in row
    first = found[0]
    if name == "Ends":
        assert first["log_tail"] == ["out of memory"]
    assert len(of(rows, "hotbed")) == 3, "the others are measured on"
    assert all("error" not in row for row in of(rows, "hotbed"))


@pytest.mark.parametrize(
    ("name", "error", "log"),
    [
        ("FailsToLoad", "RuntimeError: no such kernel", "RuntimeError: no such kernel"),
        ("EndsWhileLoading", "exit code 9", "the last words"),
    ],
)
def test_a_system_that_does_not_start_is_a_row_with_its_last_words(
    name: str, error: str, log: str, bench: Any
) -> None:
    code, rows = bench(name)
    assert code == 1
    row, *cells = of(rows, name)
    assert row["suite"] == "start"
    assert error in row["error"]
    assert row["log_tail"][-1] == log
    assert [cell["error"] for cell in cells] == [row["error"]] * 3
    assert not any("p50_ms" in cell for cell in cells)
    assert len(of(rows, "hotbed")) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Different", "Different offline differs from hotbed offline: cosine 0.9[89]"),
        ("DifferentInBatches", "in a batch; at least 0.999"),
        ("NotFinite", "NotFinite offline gave a row that is not finite"),
    ],
)
def test_a_system_whose_rows_differ_ends_the_run_before_anything_is_timed(
    name: str, message: str, bench: Any, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match=message) as raised:
        bench(name)
    assert "Nothing was timed" in raised.value.message
    assert (tmp_path / "rows.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("ends", "exit codes: [7]"),
        ("hangs", "timed out"),
        ("too few", "came back, [1, 16] are right"),
        ("500 every third", "HTTP 500"),
    ],
)
def test_a_server_that_fails_while_it_is_timed_is_an_error_not_a_number(
    how: str, error: str, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seven requests of the check in each of two ways, then the first of the first cell.
    system = System("server", "tests", server=faulty_server(how, 15))
    monkeypatch.setitem(SYSTEMS, "server", system)
    code, rows = bench(
        systems=("hotbed", "server"), suite=("concurrency",), clients=2, call_timeout_s=2.0
    )
    assert code == 1
    first, second = of(rows, "server")
    assert error in first["error"]
    assert error in second["error"]
    assert not any("p50_ms" in row for row in (first, second))
    if how == "ends":
        assert first["log_tail"] == ["out of memory"]


@pytest.mark.parametrize(
    ("name", "suite", "error"),
    [
        ("SwapsTwoRows", "scoring", "row 0 of 3: cosine .* it is row 2 of request 0"),
        ("GivesRowsOfTheRequestBefore", "latency", "row 0 of 1: cosine 0.0.* to the right one"),
        ("IsWrongOnce", "latency", "timed answers are wrong; row 0 of 1: cosine -1.000000"),
    ],
)
def test_a_row_that_was_timed_and_is_wrong_makes_no_number(
    name: str, suite: str, error: str, bench: Any
) -> None:
    code, rows = bench(name, suite=(suite,))
    assert code == 1
    for row in of(rows, name):
        assert re.search(error, row["error"]), row["error"]
        assert "p50_ms" not in row
    assert all("error" not in row for row in of(rows, "hotbed"))


def test_a_system_that_is_only_slow_is_a_number(bench: Any) -> None:
    code, rows = bench("Sleeps", suite=("latency",))
    assert code == 0
    assert all(row["p50_ms"] > 200 for row in of(rows, "Sleeps"))


@pytest.mark.parametrize(
    ("how", "suite", "error"),
    [
        ("nan", "concurrency", "row 0 of 1 is not finite"),
        ("another's", "concurrency", "row 0 of 1: cosine .* it is row 0 of request"),
        ("swapped", "throughput", "row 0 of 4: cosine .* it is row 3 of request 0"),
        ("index twice", "throughput", "4 rows came back with indexes that are not theirs"),
    ],
)
def test_a_servers_row_that_was_timed_and_is_wrong_makes_no_number(
    how: str, suite: str, error: str, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System("server", "tests", server=faulty_server(how, 15))
    monkeypatch.setitem(SYSTEMS, "server", system)
    code, rows = bench(systems=("hotbed", "server"), suite=(suite,), clients=2)
    assert code == 1
    found = of(rows, "server")
    assert found
    for row in found:
        assert re.search(error, row["error"]), row["error"]
        assert "p50_ms" not in row


def test_a_client_that_waits_for_a_slow_server_does_not_ask_the_next_one(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer came when another was waited for: rows of one system under another's name."""
    for name, how in (("slow", "sleeps"), ("server", "works")):
        system = System(name, "tests", server=faulty_server(how, 0))
        monkeypatch.setitem(SYSTEMS, name, system)
    code, rows = bench(
        systems=("hotbed", "slow", "server"), suite=("concurrency",), clients=2, call_timeout_s=2.0
    )
    assert code == 1
    assert all("no answer to 'rows' within 2 s" in row["error"] for row in of(rows, "slow"))
    assert [row["cosine_min"] for row in of(rows, "server")] == [1.0, 1.0]


def test_a_server_that_works_is_measured(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System("server", "tests", server=faulty_server("works", 0))
    monkeypatch.setitem(SYSTEMS, "server", system)
    code, rows = bench(systems=("hotbed", "server"), suite=("concurrency", "throughput"), clients=2)
    assert code == 0
    found = [(r["way"], r["n"], r["concurrency"]) for r in of(rows, "server")]
    assert found == [("http", 1, 1), ("http", 1, 2), ("clients", 4, 2)]
    for row in of(rows, "server"):
        assert row["cosine_min"] == 1.0
        # What is under way at a time bounds what can be done in the time of one.
        at_most = row["n"] * row["concurrency"] / row["p50_ms"] * 1e3
        assert 0 < row["seq_per_s"] < 3 * at_most


def test_a_server_that_ran_already_is_asked_for_its_model_by_its_own_name(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System("server", "tests", server=faulty_server("named", 0))
    monkeypatch.setitem(SYSTEMS, "server", system)
    code, rows = bench(systems=("hotbed", "server"), suite=("concurrency",), clients=2)
    assert code == 0
    assert [row["cosine_min"] for row in of(rows, "server")] == [1.0, 1.0]


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:80", "http://host:80/v1"])
def test_a_url_that_would_not_be_asked_as_it_stands_is_refused(url: str, bench: Any) -> None:
    with pytest.raises(HotbedError, match=f"--url takes SYSTEM=http://HOST:PORT, got {url!r}"):
        bench("Working", url=(f"Working={url}",), suite=("concurrency",))


def test_an_interpreter_that_cannot_be_run_is_named(bench: Any) -> None:
    with pytest.raises(HotbedError, match="--python: /no/such/python cannot be run"):
        bench("Working", python=("Working=/no/such/python",))


def test_a_system_that_may_differ_is_timed_and_marked(bench: Any) -> None:
    code, rows = bench("Different", allow_different=("Different",))
    assert code == 0
    assert all(row["different"] and row["cosine_min"] < 0.999 for row in of(rows, "Different"))
    assert all("different" not in row for row in of(rows, "hotbed"))


def test_a_system_that_is_not_installed_is_named(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SYSTEMS, "absent", System("absent", "no_such_module", "no:Such"))
    code, rows = bench(systems=("hotbed", "absent"))
    assert code == 0
    (row,) = of(rows, "absent")
    assert row["absent"] == "not installed here"


def test_a_run_out_of_time_names_what_it_left_out(bench: Any) -> None:
    _, rows = bench(max_minutes=0.0)
    assert [row["left_out"] for row in rows] == ["the run's 0 minutes were over"] * 3


def test_a_cell_that_takes_too_long_at_the_ceilings_is_left_out(bench: Any) -> None:
    _, rows = bench(longest_pass_s=1e-4)
    assert ["left_out" in row for row in rows] == [False, False, True]
