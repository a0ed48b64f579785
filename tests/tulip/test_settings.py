"""Symptoms guarded: a bad setting found at the first request, or settings that do not fit together.

Rows of cases.md: 92, 116.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FAKE_INFO
from hotbed.wire.limits import MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "model is empty"),
        ({"listen": "nonsense"}, "listen must be host:port or unix:/path"),
        ({"num_threads": 0}, "num_threads must be at least 1, got 0"),
        ({"max_step_tokens": -1}, "max_step_tokens must be at least 0"),
        ({"max_step_sequences": 0}, "max_step_sequences must be at least 1"),
        ({"max_steps_in_flight": 0}, "max_steps_in_flight must be at least 1"),
        ({"min_ahead_tokens": -1}, "min_ahead_tokens must be at least 0"),
        ({"keepalive_time_s": 0.0}, "keepalive_time_s must be above 0"),
        ({"max_connection_age_s": -1.0}, "max_connection_age_s must be at least 0"),
        ({"tls_cert": Path("c")}, "belong together"),
        ({"tls_client_ca": Path("c")}, "needs tls_cert"),
        ({"max_queue_tokens": 0}, "max_queue_tokens must be at least 1"),
        ({"max_stream_items": 0}, "max_stream_items must be at least 1"),
        ({"drain_timeout_s": -1}, "drain_timeout_s must be at least 0"),
        ({"drain_timeout_s": float("nan")}, "drain_timeout_s must be at least 0"),
        ({"step_timeout_s": -0.1}, "step_timeout_s must be at least 0"),
        ({"max_queue_tokens": 1000}, "could never be taken"),
        (
            {"max_item_tokens": 2**25, "max_queue_tokens": 2**25},
            f"a message holds {MAX_MESSAGE_BYTES}",
        ),
        ({"metrics_port": 65536}, "metrics_port must be 0 to 65535"),
        ({"log_level": "loud"}, "log_level must be one of debug, info"),
    ],
)
def test_a_bad_setting_is_refused_at_once_and_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TulipSettings(**settings)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TulipSettings().model = "other"  # type: ignore[misc]


def test_an_unset_step_budget_is_the_engines() -> None:
    assert TulipSettings().limits(FAKE_INFO, 2048).max_step_tokens == 2048
    assert TulipSettings(max_step_tokens=64).limits(FAKE_INFO, 2048).max_step_tokens == 64


def test_an_item_that_passes_the_items_limits_fits_an_empty_queue() -> None:
    limits = TulipSettings().limits(FAKE_INFO, 2048)
    assert limits.max_item_tokens <= limits.max_queue_tokens


def test_a_model_longer_than_an_item_may_be_is_refused() -> None:
    with pytest.raises(ValueError, match="below the model's longest sequence"):
        TulipSettings(max_item_tokens=511).limits(FAKE_INFO, 2048)


def test_an_item_whose_rows_do_not_fit_a_message_is_refused() -> None:
    wide = replace(FAKE_INFO, dimensions=16_384)
    with pytest.raises(ValueError, match="max_item_sequences rows of 16384 dimensions"):
        TulipSettings().limits(wide, 2048)


def test_every_field_says_what_it_is() -> None:
    import ast
    import inspect

    (record,) = ast.parse(inspect.getsource(TulipSettings)).body
    assert isinstance(record, ast.ClassDef)
    body = record.body
    for i, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            after = body[i + 1]
            assert isinstance(after, ast.Expr), f"{ast.unparse(node.target)} has no docstring"
