"""Settings that cannot work are refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.ivy.settings import IvySettings


def test_the_defaults_hold():
    settings = IvySettings()
    assert settings.model == DEFAULT_MODEL
    # Common client pools and proxies keep idle connections for 60 to 90 s.
    assert settings.keep_alive_s > 90 + 75


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"replicas": ()}, "replicas"),
        ({"replicas": ("a:1", "a:1")}, "replicas"),
        ({"replicas": ("dns:host",)}, "dns:host:port"),
        ({"replicas": ("dns:host:99999",)}, "dns:host:port"),
        ({"replicas": ("file:",)}, "no file"),
        ({"models_file": Path("m.toml"), "model": "x"}, "model and models_file"),
        ({"models_file": Path("m.toml"), "replicas": ("x:1",)}, "replicas and models_file"),
        ({"slow_start_s": -1}, "slow_start_s"),
        ({"min_ready_replicas": 2}, "min_ready_replicas"),
        ({"min_ready_replicas": 0}, "min_ready_replicas"),
        ({"max_body_bytes": 0}, "max_body_bytes"),
        ({"request_timeout_s": -1}, "request_timeout_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"replica_keepalive_time_s": 0}, "replica_keepalive_time_s"),
        ({"replica_tls_name": "x"}, "replica_tls_name needs replica_tls_ca"),
        (
            {"replica_tls_ca": Path("a"), "replica_tls_cert": Path("c")},
            "replica_tls_cert and replica_tls_key",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(changes, named):
    with pytest.raises(ValueError, match=named):
        IvySettings(**changes)


def test_the_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        IvySettings().port = 1  # type: ignore[misc]
