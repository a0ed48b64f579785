"""Jobs on a Ray cluster: the bytes of a local job, also where a node is killed on the way."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from hotbed.bulk.local import ModelOptions  # noqa: E402
from hotbed.bulk.ray_plan import Plan, connected, make_plan  # noqa: E402
from hotbed.bulk.ray_runner import RayRunner  # noqa: E402
from hotbed.core.errors import HotbedError  # noqa: E402
from tests.bulk.jobs import embed, result, texts, write_jsonl  # noqa: E402
from tests.support.checkpoints import make_bert  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Of Ray's own start, which the job does not touch.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs and three nodes of one CPU each."""
    memory = {"object_store_memory": 80 << 20}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patched.setenv("RAY_worker_niceness", "0")  # 15 by default: too little on a busy machine
        head = {"num_cpus": 0, "include_dashboard": False, **memory}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(3):
                made.add_node(num_cpus=1, **memory)
            ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a part takes longer than the loss of a node."""
    return make_bert(
        tmp_path_factory.mktemp("m") / "m", layers=6, hidden=384, heads=12, intermediate=1536
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: list[dict[str, Any]] = [{"id": i, "text": t} for i, t in enumerate(texts(4000))]
    rows[700]["text"] = ""
    rows[3000]["text"] = "fox " * 100
    return write_jsonl(tmp_path_factory.mktemp("c") / "c.jsonl", rows)


OPTIONS: dict[str, Any] = {"rows_per_part": 400, "bad": "skip", "too_long": "truncate"}


@pytest.fixture(scope="module")
def local(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "out"
    embed(model, corpus, out, **OPTIONS)
    return result(out)


def test_a_node_killed_in_mid_job_changes_no_byte(
    cluster: Cluster,
    model: Path,
    corpus: Path,
    local: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_back: list[list[int]] = []
    deal, lost = RayRunner._deal, RayRunner._lost

    def kill_a_node_in_mid_part(self: RayRunner) -> None:
        deal(self)
        busy = [worker for worker in self._workers if len(worker.parts) == 2]
        if len(cluster.worker_nodes) < 3 or len(self._todo) > 6 or not busy:
            return
        facts = ray._private.state.actors(busy[0].actor._actor_id.hex())
        node_id = facts["Address"]["NodeID"]
        (node,) = (node for node in cluster.worker_nodes if node.node_id == node_id)
        cluster.remove_node(node, allow_graceful=False)

    def noted(self: RayRunner, worker: Any, error: Any) -> Any:
        taken_back.append(list(worker.parts))
        return lost(self, worker, error)

    monkeypatch.setattr(RayRunner, "_deal", kill_a_node_in_mid_part)
    monkeypatch.setattr(RayRunner, "_lost", noted)
    try:
        said = embed(model, corpus, tmp_path / "out", engine="ray", **OPTIONS)
    finally:
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    # A replacement may be lost again, without a part, while the cluster still counts on the node.
    assert [len(parts) for parts in taken_back if parts] == [2]
    assert result(tmp_path / "out") == local
    assert "3,999 rows in 10 parts" in said
    report = json.loads((tmp_path / "out" / "_report.json").read_text())
    assert report["last_run"]["rows"] == 4000  # what was lost is not counted twice
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [i for i in range(4000) if i != 700]


def test_a_stopped_job_goes_on_on_either_engine(
    cluster: Cluster,
    model: Path,
    corpus: Path,
    local: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hotbed.bulk import job

    record = job._Job._record
    parts = 0

    def interrupted(self: Any, part: Any) -> None:
        nonlocal parts
        record(self, part)
        parts += 1
        if parts == 2:
            raise KeyboardInterrupt

    for how in ({"engine": "ray", "workers": 1}, {"engine": "local"}):
        parts = 0
        with monkeypatch.context() as patched:
            patched.setattr(job._Job, "_record", interrupted)
            with pytest.raises(HotbedError, match="--resume goes on"):
                embed(model, corpus, tmp_path / "out", **{**OPTIONS, **how}, resume=True)
    said = embed(model, corpus, tmp_path / "out", engine="ray", workers=1, resume=True, **OPTIONS)
    assert "4 parts were done before" in said
    assert result(tmp_path / "out") == local
    said = embed(model, corpus, tmp_path / "out", engine="ray", **OPTIONS)
    assert said.startswith("nothing to do: the job is finished")


def test_a_bad_row_ends_the_job_with_its_line(
    cluster: Cluster, model: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match=r"c\.jsonl, line 701: text holds no text"):
        embed(model, corpus, tmp_path / "out", engine="ray", workers=1, **OPTIONS | {"bad": "fail"})


def test_a_model_that_is_not_there_is_named(cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(HotbedError, match="nowhere"):
        embed(tmp_path / "nowhere", corpus, tmp_path / "out", engine="ray")


@pytest.mark.parametrize(
    ("nodes", "options", "num_workers", "plan"),
    [
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}], {}, None, Plan(3, 1, 1)),
        ([{"CPU": 8.0, "GPU": 2.0}], {"device": "cpu"}, None, Plan(1, 8, 0)),
        ([{"CPU": 8.0}, {"CPU": 5.0}, {}], {}, None, Plan(2, 5, 0)),
        ([{"CPU": 8.0}, {"CPU": 5.0}], {"threads": 2}, None, Plan(6, 2, 0)),
        ([{"CPU": 8.0}], {"threads": 2}, 9, Plan(9, 2, 0)),
    ],
)
def test_the_plan_fits_the_cluster(
    nodes: list[dict[str, float]], options: dict[str, Any], num_workers: int | None, plan: Plan
) -> None:
    made, model = make_plan(nodes, ModelOptions(model="m", **options), num_workers)
    assert made == plan
    assert model.threads == (options.get("threads") if plan.num_gpus else plan.num_cpus)


@pytest.mark.parametrize(
    ("nodes", "options", "said"),
    [
        ([{"CPU": 8.0}], {"device": "cuda"}, "the cluster has no GPU"),
        ([{"CPU": 8.0, "GPU": 1.0}], {"device": "cuda:0"}, "give --device cuda"),
        ([{"CPU": 2.0}, {"CPU": 3.0}], {"threads": 4}, "the 4 CPUs that a worker needs"),
        ([{}], {}, "no node of the cluster"),
    ],
)
def test_a_cluster_that_does_not_fit_is_refused(
    nodes: list[dict[str, float]], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(HotbedError, match=said):
        make_plan(nodes, ModelOptions(model="m", **options), None)


def test_addresses_that_cannot_work_are_named() -> None:
    with pytest.raises(HotbedError, match="on a machine of the cluster"), connected("ray://x:1"):
        pass
    # At once: Ray itself tries for minutes.
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    ray.shutdown()  # a connection that exists would be used
    with (
        pytest.raises(HotbedError, match=f"--address 127.0.0.1:{port}: .*refused"),
        connected(f"127.0.0.1:{port}"),
    ):
        pass
