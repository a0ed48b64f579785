"""Inputs as people have them: damaged, oddly typed or named. Each is read, or refused by name."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotbed.bulk.sources import find_sources
from hotbed.core.errors import HotbedError
from tests.bulk.test_readers import ROWS, corpus_of, faults, rows_of, write_jsonl

TEXTS = [row["body"] for row in ROWS[:20]]
IDS = list(range(20))


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def arrow_stream(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_texts_of_every_string_type_are_read(kind: Any, tmp_path: Path) -> None:
    array = pa.array(TEXTS)
    if pa.types.is_run_end_encoded(kind):
        array = pa.RunEndEncodedArray.from_arrays([i + 1 for i in IDS], TEXTS)
    else:
        array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    path = arrow_stream(tmp_path / "a.arrow", pa.table({"body": array, "other": array}))
    corpus = corpus_of(path)
    assert rows_of(corpus) == [{"body": text, "other": text} for text in TEXTS]


def test_dictionaries_that_change_between_batches_keep_their_values(tmp_path: Path) -> None:
    chunks = [pa.array(TEXTS[:10]).dictionary_encode(), pa.array(TEXTS[10:]).dictionary_encode()]
    table = pa.table({"body": TEXTS, "o": pa.chunked_array(chunks)})
    rows = rows_of(corpus_of(arrow_stream(tmp_path / "a.arrow", table)))
    assert [row["o"] for row in rows] == TEXTS


def test_a_column_that_is_a_dictionary_in_one_file_only_is_read(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", body=TEXTS, o=TEXTS)
    encoded = pa.array(TEXTS).dictionary_encode()
    parquet(tmp_path / "b.parquet", body=encoded, o=encoded)
    assert [row["o"] for row in rows_of(corpus_of(tmp_path))] == TEXTS * 2


def test_a_column_that_one_file_lacks_may_be_null(tmp_path: Path) -> None:
    schema = pa.schema([("body", pa.string()), pa.field("x", pa.int64(), nullable=False)])
    pq.write_table(
        pa.table([pa.array(TEXTS), pa.array(IDS)], schema=schema), tmp_path / "a.parquet"
    )
    parquet(tmp_path / "b.parquet", body=TEXTS)
    corpus = corpus_of(tmp_path)
    assert corpus.columns.schema.field("x").nullable
    assert [row["x"] for row in rows_of(corpus)] == IDS + [None] * 20


def test_two_columns_of_one_name_are_refused_with_the_file(tmp_path: Path) -> None:
    arrays = [pa.array(TEXTS), pa.array(IDS), pa.array(IDS)]
    pq.write_table(pa.Table.from_arrays(arrays, names=["body", "id", "id"]), tmp_path / "a.parquet")
    with pytest.raises(HotbedError, match=r"a\.parquet has several columns 'id'"):
        corpus_of(tmp_path)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)] * 20, pa.month_day_nano_interval()),
        pa.array([{}] * 20, pa.struct([])),
        pa.UnionArray.from_sparse(pa.array([0] * 20, pa.int8()), [pa.array(IDS)]),
    ],
    ids=["interval", "empty struct", "union"],
)
def test_a_column_that_no_part_can_hold_is_refused_before_the_model_loads(
    column: Any, tmp_path: Path
) -> None:
    path = arrow_stream(tmp_path / "a.arrow", pa.table({"body": TEXTS, "o": column, "id": IDS}))
    with pytest.raises(HotbedError, match=r"column 'o' holds .*, which cannot be kept.*--keep"):
        corpus_of(path)
    assert rows_of(corpus_of(path, keep=("id",)))[3] == {"body": TEXTS[3], "id": 3}


def test_a_string_that_is_no_utf8_spoils_its_own_row(tmp_path: Path) -> None:
    texts = pa.array([b"fox", b"\xff\xfe", None, b"dog"]).view(pa.string())
    corpus = corpus_of(parquet(tmp_path / "a.parquet", body=texts))
    assert [row["body"] for row in rows_of(corpus)] == ["fox", "dog"]
    assert faults(corpus) == [(2, "body is no UTF-8"), (3, "body is null")]


LINES = b'{"body": "the fox"}\n' * 300


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.jsonl.gz", gzip.compress), ("a.jsonl.bz2", bz2.compress), ("a.jsonl.zst", _zstd)],
)
def test_damaged_compressed_files_are_named(
    name: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    data = compress(LINES)
    for damaged in (data[: len(data) // 2], b"this is not compressed at all"):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(HotbedError, match=rf"input .*{name}: "):
            corpus_of(tmp_path / name)
    # Several in one file are one, and capitals are a suffix too.
    (tmp_path / name).write_bytes(data + data)
    (tmp_path / name).rename(tmp_path / name.upper())
    assert corpus_of(tmp_path / name.upper()).total_rows == 600
    assert len(rows_of(corpus_of(tmp_path / name.upper()))) == 600


def test_a_compressed_text_file_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("the füchse".encode()))
    assert rows_of(corpus_of(tmp_path))[0]["body"] == "the füchse"


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_file_damaged_in_its_middle_is_named(name: str, tmp_path: Path) -> None:
    table = pa.table({"body": [f"{i} {text}" for i in range(100) for text in TEXTS]})
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        arrow_stream(tmp_path / name, table)
    data = bytearray((tmp_path / name).read_bytes())
    data[1500:9000] = b"\x9d" * 7500
    (tmp_path / name).write_bytes(data)
    with pytest.raises(HotbedError, match=rf"input .*{name}: "):
        rows_of(corpus_of(tmp_path / name))


def test_a_record_of_csv_with_wrong_quotes_is_a_broken_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbf"id","body"\r\n1,"the ""fox"", and\r\na dog"\r\n2,"the fox" runs\r\n3,dog\r\n'
        b'4,"never\r\nclosed\r\n'
    )
    corpus = corpus_of(tmp_path / "a.csv")
    assert rows_of(corpus) == [
        {"id": "1", "body": 'the "fox", and\r\na dog'},
        {"id": "3", "body": "dog"},
    ]
    assert [(line, detail.partition(":")[0]) for line, detail in faults(corpus)] == [
        (2, "lines 4 to 4 of the file are no record of CSV"),
        (4, "lines 6 to 7 of the file are no record of CSV"),
    ]


def test_blank_lines_before_a_header_of_csv_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n\nid,body\n1,the fox\n")
    assert rows_of(corpus_of(tmp_path / "a.csv")) == [{"id": "1", "body": "the fox"}]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", "id,body\n1,fox\n".encode("utf-16"), "the header is no UTF-8"),
        ("a.jsonl", '{"body": "fox"}\n'.encode("utf-16"), "line 1: the line is no valid JSON"),
        ("a.jsonl", b'\n[{"body": "fox"}]\n', "line 2: the line is no JSON object"),
    ],
)
def test_a_file_of_which_no_row_can_be_read_says_why(
    name: str, data: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(HotbedError, match=rf"input .*{name}.*{said}"):
        corpus_of(tmp_path / name)


def test_values_nested_without_end_do_not_end_the_job(tmp_path: Path) -> None:
    def row(depth: int) -> bytes:
        return b'{"body": "fox", "v": ' + b"[" * depth + b"]" * depth + b"}\n"

    (tmp_path / "a.jsonl").write_bytes(row(40) + row(900))
    corpus = corpus_of(tmp_path / "a.jsonl")
    assert rows_of(corpus) == [{"body": "fox", "v": "[" * 40 + "]" * 40}]
    assert faults(corpus) == [(2, "a value is nested too deeply")]


def test_what_others_keep_beside_the_rows_is_no_input(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS[:3])
    for name in ("_temporary/a.jsonl", "x/_delta_log/a.jsonl", ".ipynb/a.jsonl", "_b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(tmp_path / name, ROWS[:3])
    write_jsonl(tmp_path / "x" / "c.jsonl", ROWS[:3])
    found = [Path(source.path).name for source in find_sources([str(tmp_path)], "auto")]
    assert found == ["a.jsonl", "c.jsonl"]


def test_a_link_that_leads_nowhere_is_not_left_out(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS[:3])
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(HotbedError, match=r"b\.jsonl: No such file"):
        find_sources([str(tmp_path)], "auto")


def test_a_pipe_by_its_name_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(HotbedError, match=r"is no regular file.*give - "):
        find_sources([str(tmp_path / "a.jsonl")], "auto")


def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(LINES)
    with pytest.raises(HotbedError, match="its name is no UTF-8"):
        find_sources([str(tmp_path)], "auto")
