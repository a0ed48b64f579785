"""Every format gives the same rows; what is broken is named by its line and never lost."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotbed.bulk import read, readers
from hotbed.bulk.read import Corpus, scan, windows
from hotbed.bulk.sources import find_sources
from hotbed.core.errors import HotbedError
from tests.bulk.jobs import texts, write_jsonl

ROWS = [{"id": str(i), "body": text} for i, text in enumerate(texts(300))]


def corpus_of(*inputs: Path, text: str = "body", form: Any = "auto", **options: Any) -> Corpus:
    sources = find_sources([str(path) for path in inputs], form)
    return scan(sources, text, **({"keep": (), "vector_column": "embedding"} | options))


def rows_of(corpus: Corpus, ranges: list[tuple[int, int]] | None = None) -> list[dict[str, Any]]:
    blocks = corpus.blocks(ranges or [(0, corpus.total_rows)])
    return [row for block in blocks for row in block.table.to_pylist()]


def faults(corpus: Corpus) -> list[tuple[int, str]]:
    blocks = corpus.blocks([(0, corpus.total_rows)])
    return [(corpus.place(p.row)[1], p.detail) for block in blocks for p in block.problems]


def _csv(path: Path, delimiter: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "body"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def _arrow(path: Path, open_writer: Callable[..., Any]) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as sink, open_writer(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.jsonl": lambda path: write_jsonl(path, ROWS),
    "a.ndjson.gz": lambda path: path.write_bytes(
        gzip.compress(write_jsonl(path.with_name("plain"), ROWS).read_bytes())
    ),
    "a.csv": lambda path: _csv(path, ","),
    "a.tsv": lambda path: _csv(path, "\t"),
    "a.parquet": lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=70),
    "a.arrow": lambda path: _arrow(path, pa.ipc.new_file),
    "stream.arrow": lambda path: _arrow(path, pa.ipc.new_stream),
}


@pytest.mark.parametrize("name", WRITERS)
def test_rows_come_whole_and_from_any_place(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "BLOCK_ROWS", 32)
    WRITERS[name](tmp_path / name)
    corpus = corpus_of(tmp_path / name)
    assert corpus.total_rows == 300
    assert rows_of(corpus) == ROWS
    ranges = [(0, 3), (69, 142), (299, 300)]
    assert rows_of(corpus, ranges) == ROWS[0:3] + ROWS[69:142] + ROWS[299:]
    numbers = [block.first_row for block in corpus.blocks(ranges)]
    assert numbers[0] == 0
    assert numbers[-1] == 299


def test_a_saved_dataset_of_hugging_face_is_read_in_its_own_order(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for name, rows in (("b.arrow", ROWS[:100]), ("a.arrow", ROWS[100:])):
        table = pa.Table.from_pylist(rows)
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as writer,
        ):
            writer.write_table(table)
    state = '{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}'
    (folder / "state.json").write_text(state)
    assert rows_of(corpus_of(folder)) == ROWS
    (folder / "state.json").write_text(state[:-1] + ', "_indices_data_files": [1]}')
    with pytest.raises(HotbedError, match="indices mapping"):
        corpus_of(folder)


def test_a_folder_of_texts_and_a_glob_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    for name, data in (
        ("b.md", b"two"),
        ("deep/c.txt", b"three"),
        ("a.txt", b"one"),
        ("x.py", b""),
    ):
        (tmp_path / "docs" / name).write_bytes(data)
    folder = corpus_of(tmp_path / "docs")
    assert [row["body"] for row in rows_of(folder)] == ["one", "two", "three"]
    assert rows_of(folder)[0]["path"] == str(tmp_path / "docs" / "a.txt")
    assert len(rows_of(corpus_of(tmp_path / "docs" / "**" / "*.txt"))) == 2


def test_broken_rows_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"body": "fox"}\n\n{"body": 3}\n[1]\n{"body"\n{"id": 1}\n{"body": null}\n'
        b'{"body": "\xff"}\n{"body": "dog"}'
    )
    corpus = corpus_of(tmp_path / "a.jsonl")
    assert [row["body"] for row in rows_of(corpus)] == ["fox", "dog"]
    assert faults(corpus) == [
        (3, "body is no string but int"),
        (4, "the line is no JSON object"),
        (5, "the line is no valid JSON"),
        (6, "body is missing"),
        (7, "body is null"),
        (8, "the line is no valid JSON"),
    ]
    (tmp_path / "b.csv").write_bytes(b"id,body\n1,fox\n2\n3,\xff\n\n5,dog\n")
    corpus = corpus_of(tmp_path / "b.csv")
    assert [row["body"] for row in rows_of(corpus)] == ["fox", "dog"]
    assert faults(corpus) == [
        (2, "the record has 1 fields, the header 2"),
        (3, "the record is no UTF-8"),
    ]
    pq.write_table(pa.table({"body": ["fox", None, "dog"]}), tmp_path / "c.parquet")
    assert faults(corpus_of(tmp_path / "c.parquet")) == [(2, "body is null")]


def test_values_without_a_common_type_are_kept_as_json_text(tmp_path: Path) -> None:
    rows = [
        {"body": "a", "mixed": 1, "sparse": None, "number": 1, "empty": {}},
        {"body": "b", "mixed": "x", "number": 2.5},
        {"body": "c", "mixed": [1], "late": True},
    ]
    made = rows_of(corpus_of(write_jsonl(tmp_path / "a.jsonl", rows)))
    assert [row["mixed"] for row in made] == ["1", '"x"', "[1]"]
    assert [row["number"] for row in made] == [1.0, 2.5, None]
    assert [row["late"] for row in made] == [None, None, True]
    assert [row["empty"] for row in made] == ["{}", None, None]


def test_a_value_that_fits_no_column_spoils_its_own_row_only(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"body": str(i), "n": i} for i in range(10)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    corpus = corpus_of(path)
    mended = [*rows[:4], {"body": "x", "n": "four"}, *rows[5:]]
    block = corpus.columns.block(0, mended, [20] * 10)
    assert [row["n"] for row in block.table.to_pylist()] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert block.good.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [(p.row, p.problem) for p in block.problems] == [(4, "broken")]


def test_only_kept_columns_are_read_and_unknown_ones_refused(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.parquet"):
        WRITERS[name](tmp_path / name)
        assert rows_of(corpus_of(tmp_path / name, keep=("body",)))[0] == {"body": ROWS[0]["body"]}
        with pytest.raises(HotbedError, match=r"--keep 'nope': no input has this column.*'id'"):
            corpus_of(tmp_path / name, keep=("nope",))
        with pytest.raises(HotbedError, match="--text 'nope'"):
            corpus_of(tmp_path / name, text="nope")
        with pytest.raises(HotbedError, match="--vector-column"):
            corpus_of(tmp_path / name, vector_column="id")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["nope.jsonl"], "there is no such file or folder"),
        (["*.nope"], "no file of a known format"),
        (["a.bin"], "its name does not tell its format"),
        (["a.parquet"], "is no Parquet file"),
        (["a.arrow"], "is no Arrow file"),
        (["empty.jsonl"], "the inputs hold no rows"),
        (["-", "empty.jsonl"], "must be the only input"),
    ],
)
def test_an_input_that_cannot_be_read_is_named(
    inputs: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.bin", "a.parquet", "a.arrow"):
        Path(name).write_bytes(b"neither of them, but long enough")
    Path("empty.jsonl").write_bytes(b"\n")
    with pytest.raises(HotbedError, match=said):
        scan(find_sources(inputs, "auto"), "text", keep=(), vector_column="v")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.ndjson.gz", "a.txt"])
def test_parts_in_the_middle_are_the_same_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MARK_ROWS", 16)
    monkeypatch.setattr(readers, "BLOCK_ROWS", 7)
    path, form = tmp_path / name, "lines" if name == "a.txt" else "auto"
    if name == "a.txt":
        path.write_bytes(b"\xef\xbb\xbf" + b"".join(b"%d\r\n" % i for i in range(300)))
    else:
        WRITERS[name](path)
    corpus = corpus_of(path, form=form)
    assert len(corpus.marks[0]) == (18 if name in ("a.jsonl", "a.txt") else 0)
    whole = [row for block in corpus.blocks([(0, 300)]) for row in block.table.to_pylist()]
    assert len(whole) == 300
    for ranges in ([(15, 18)], [(16, 17), (40, 90), (299, 300)], [(3, 5), (6, 200)]):
        made = [row for block in corpus.blocks(ranges) for row in block.table.to_pylist()]
        assert made == [row for start, stop in ranges for row in whole[start:stop]]


def test_a_part_at_the_end_does_not_read_the_file_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MARK_ROWS", 16)
    corpus = corpus_of(write_jsonl(tmp_path / "a.jsonl", ROWS))
    reader = readers.JsonLines(corpus.sources[0], corpus.marks[0])
    given = list(reader.records(corpus.marks[0][-1]))
    assert len(given) == 300 - 288
    read_from: list[int] = []
    records = readers.LineReader.records

    def noted(self: readers.LineReader, position: int = 0) -> Any:
        for record in records(self, position):
            read_from.append(position)
            yield record

    monkeypatch.setattr(readers.LineReader, "records", noted)
    list(corpus.blocks([(290, 300)]))
    assert read_from == [corpus.marks[0][-1]] * 12


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow", "csv"])
def test_other_columns_count_for_a_windows_size(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "WINDOW_BYTES", 100_000)
    rows = [{"body": "a", "payload": "x" * 10_000} for _ in range(50)]
    schema = pa.schema([("body", pa.string()), ("payload", pa.string())])
    path = tmp_path / f"a.{suffix}"
    if suffix == "jsonl":
        write_jsonl(path, rows)
    elif suffix == "csv":
        path.write_text("body,payload\n" + "".join(f"a,{row['payload']}\n" for row in rows))
    elif suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    sizes = [w.rows.num_rows for w in windows(corpus_of(path), [0], 1000)]
    assert sum(sizes) == 50
    assert max(sizes) in (10, 11)


def test_windows_depend_on_the_rows_of_their_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "WINDOW_ROWS", 20)
    monkeypatch.setattr(read, "WINDOW_BYTES", 1700)
    corpus = corpus_of(write_jsonl(tmp_path / "a.jsonl", ROWS))

    def borders(parts: list[int]) -> list[tuple[int, int, int]]:
        found = windows(corpus, parts, 90)
        return [(w.part, w.rows.first_row, w.rows.num_rows) for w in found]

    whole = borders([0, 1, 2, 3])
    assert sum(n for _, _, n in whole) == 300
    assert max(n for _, _, n in whole) == 20
    assert min(n for _, _, n in whole[:-1]) < 20
    monkeypatch.setattr(readers, "BLOCK_ROWS", 7)
    assert borders([0, 1, 2, 3]) == whole
    assert borders([1, 3]) == [w for w in whole if w[0] in (1, 3)]
