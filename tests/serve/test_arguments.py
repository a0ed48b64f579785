"""What the supervisor was told reaches the children, through a command line like a person's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hotbed.cli import app
from hotbed.ivy.settings import IvySettings
from hotbed.serve.arguments import to_arguments
from hotbed.tulip.settings import TulipSettings


@pytest.mark.parametrize(
    "settings",
    [
        TulipSettings(),
        TulipSettings(model="--odd name", listen="unix:/a b/c.sock", num_threads=3, warm_up=False),
        TulipSettings(offline=True, max_step_tokens=77, step_timeout_s=0.5, metrics_port=9000),
        IvySettings(replicas=("unix:/x", "unix:/y"), offline=False, drain_timeout_s=1e-3),
        IvySettings(served_model_names=("a", "b c"), host="::1", fast_tokenizers="off"),
    ],
)
def test_arguments_build_the_same_record(settings: TulipSettings | IvySettings) -> None:
    name = "tulip" if isinstance(settings, TulipSettings) else "ivy"
    _, bound, _ = app.parse_args([name, *to_arguments(settings)])
    assert bound.args == (() if settings == type(settings)() else (settings,))


def test_defaults_need_no_arguments() -> None:
    assert to_arguments(TulipSettings()) == []


def test_value_without_a_form_on_the_command_line_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd:
        names: tuple[str, ...] = ("a",)

    with pytest.raises(TypeError, match="names"):
        to_arguments(Odd(names=()))
