"""The dashboard names only metrics that the services have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotbed.ivy.metrics import Metrics as IvyMetrics
from hotbed.ivy.spread import SpreadRows
from hotbed.tulip.metrics import Metrics as TulipMetrics
from tests.support.pages import PAGES, name_of

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "hotbed.json"


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def there_are() -> set[str]:
    """Sample names of both services, with every labelled metric touched once."""
    ivy = IvyMetrics(routes=["/x"])
    ivy.count_answer("/x", 200)
    ivy.request_seconds.series("/x").observe(0.1)
    model = ivy.for_model("m")
    model.count_work(1, 5, 0.001, SpreadRows([np.zeros((1, 4))], "f", 10, 20, 20))
    model.count_message()
    model.set_replica("a", is_up=True, outstanding_tokens=0)
    model.set_pending_tokens(0)
    tulip = TulipMetrics()
    tulip.watch_engine(lambda: {"eager": 0})
    text = ivy.text().decode() + generate_latest(tulip.registry).decode()
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


def named() -> set[str]:
    words = re.findall(r"\b((?:hotbed|process)_\w+)", " ".join(expressions()))
    return set(words)


def test_every_metric_of_the_dashboard_exists():
    assert named()
    assert named() <= there_are()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_metric_that_a_page_names_exists(page):
    stems = {_stem(name) for name in there_are()}
    words = re.findall(r"\bhotbed_(?:ivy|tulip)_\w+", page.read_text("utf-8"))
    assert {_stem(word) for word in words} <= stems


def test_every_metric_of_ours_is_on_the_dashboard():
    ours = {name for name in there_are() if name.startswith("hotbed_")}
    missing = {name for name in ours if not any(name.startswith(_stem(used)) for used in named())}
    assert not missing


def _stem(name: str) -> str:
    return re.sub(r"_(bucket|sum|count|total)$", "", name)


def test_every_label_of_the_dashboard_exists():
    text = " ".join(expressions())
    labels = {w.strip() for group in re.findall(r"by \(([^)]*)\)", text) for w in group.split(",")}
    assert labels <= {"le", "status", "route", "model", "stage", "replica", "outcome", "what",
                      "kind", "instance"}  # fmt: skip


def test_panels_do_not_overlap_and_say_what_they_show():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    seen = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & seen, panel["title"]
        seen |= cells
        assert panel["type"] == "row" or panel["description"]
    assert len({panel["id"] for panel in panels}) == len(panels)
