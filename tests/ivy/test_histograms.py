"""Our own histograms say the same as prometheus_client's."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotbed.ivy.histograms import Histograms

BOUNDS = (0.001, 0.01, 0.5, 1, 60)


def samples(registry: CollectorRegistry) -> dict:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_counts_sums_and_bucket_edges_are_those_of_the_library():
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    reference = Histogram("t_seconds", "T.", ["stage"], buckets=BOUNDS, registry=theirs)
    histograms = Histograms("t_seconds", "T.", label="stage", bounds=BOUNDS)
    ours.register(histograms)
    rng = random.Random(0)
    values = [*BOUNDS, 0.0, 100.0, *(rng.expovariate(2) for _ in range(500))]
    for stage in ("a", "b"):
        for value in values:
            reference.labels(stage).observe(value)
            histograms.series(stage).observe(value)
    assert samples(ours) == samples(theirs)
