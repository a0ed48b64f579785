"""Our own counters and histograms say the same as prometheus_client's."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotbed.ivy.histograms import Counts, Histograms

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


def test_counters_say_what_the_librarys_say():
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    reference = Counter("t_answers", "T.", ["route", "status"], registry=theirs)
    counts = Counts("t_answers", "T.", label="route", second="status")
    ours.register(counts)
    for route, status, number in (("a", 200, 3), ("a", 404, 1), ("b", 200, 2), ("a", 200, 4)):
        reference.labels(route, str(status)).inc(number)
        counts.add((route, status), number)
    assert samples(ours) == samples(theirs)
    assert counts.total == 10
