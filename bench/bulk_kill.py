"""Jobs killed with SIGKILL as a person would see it: `python -m bench.bulk_kill --kills 20`.

`hotbed embed --out` runs as a process of its own on the default model and is killed a moment after
its k-th part appeared, k and moment drawn at random, again and again with `--resume`; then it is
left to finish. Every file must have the bytes of a job that nobody disturbed, and every row must
be there once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from hotbed.bench.texts import mixed_texts

_ROWS_A_PART = 20
_POLL_S = 0.005


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kills-a-job", type=int, default=4)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="hotbed-kill-"))
    dice = random.Random(arguments.seed)
    killed = 0
    try:
        corpus = scratch / "corpus.jsonl"
        rows = [{"id": i, "text": t} for i, t in enumerate(mixed_texts(arguments.rows))]
        rows[7]["text"] = ""
        rows[31]["text"] = "river " * 900
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        embed(corpus, scratch / "undisturbed").communicate()
        expected = files(scratch / "undisturbed")
        num_parts = -(-arguments.rows // _ROWS_A_PART)
        while killed < arguments.kills:
            out = scratch / "out"
            shutil.rmtree(out, ignore_errors=True)
            for _ in range(arguments.kills_a_job):
                killed += kill(embed(corpus, out), out, dice, num_parts)
            process = embed(corpus, out)
            process.communicate()
            if process.returncode or files(out) != expected:
                sys.exit(f"after {killed} kills the files differ, or the job failed: {out}")
            ids = pq.read_table(out)["id"].to_pylist()
            if list(dict.fromkeys(ids)) != [i for i in range(arguments.rows) if i != 7]:
                sys.exit(f"after {killed} kills rows are missing or out of order: {out}")
            print(f"{killed} kills, all bytes as undisturbed", flush=True)
    except BaseException:
        print(f"left as it is: {scratch}", file=sys.stderr)
        raise
    shutil.rmtree(scratch)
    return 0


def embed(corpus: Path, out: Path) -> subprocess.Popen[bytes]:
    """A job that goes on with what is there."""
    command = [sys.executable, "-m", "hotbed.cli", "embed", str(corpus), "--out", str(out)]
    command += ["--rows-per-part", str(_ROWS_A_PART), "--threads", "1", "--resume", "--dedupe"]
    command += ["--too-long", "chunk", "--bad", "skip"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes], out: Path, dice: random.Random, num_parts: int) -> int:
    """Kill it at a random point; 0 if it was done before, else 1."""
    there = len(list(out.glob("part-*")))
    wanted = dice.randint(there, num_parts - 1)
    while process.poll() is None and len(list(out.glob("part-*"))) < max(1, wanted):
        time.sleep(_POLL_S)
    time.sleep(dice.uniform(0, 0.2))
    if process.poll() is not None:
        return 0
    process.kill()
    process.wait()
    return 1


def files(out: Path) -> dict[str, bytes]:
    """All that a finished job leaves but what tells of its runs."""
    return {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if not path.name.startswith(("_report", "_lock"))
    }


if __name__ == "__main__":
    sys.exit(main())
