"""A child that dies comes back, ever more slowly; one that can never run is given up."""

from __future__ import annotations

from hotbed.core.exit_codes import EXIT_CONFIGURATION
from hotbed.serve.restarts import RestartLimits, RestartPolicy

LIMITS = RestartLimits(first_delay_s=0.1, max_delay_s=1.0, healthy_s=30.0, max_failed_starts=3)


def test_delays_double_up_to_the_longest() -> None:
    policy = RestartPolicy(LIMITS)
    delays = [policy.after_exit(-9, ready_for_s=1.0) for _ in range(6)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_delay_starts_over_after_a_healthy_life() -> None:
    policy = RestartPolicy(LIMITS)
    for _ in range(4):
        policy.after_exit(-9, ready_for_s=29.9)
    assert policy.after_exit(-9, ready_for_s=30.0) == 0.1
    assert policy.after_exit(-9, ready_for_s=0.0) == 0.2


def test_configuration_error_at_the_start_is_not_tried_again() -> None:
    assert RestartPolicy(LIMITS).after_exit(EXIT_CONFIGURATION, ready_for_s=None) is None


def test_given_up_after_so_many_starts_without_ever_being_ready() -> None:
    policy = RestartPolicy(LIMITS)
    delays = [policy.after_exit(1, ready_for_s=None) for _ in range(3)]
    assert delays == [0.1, 0.2, None]


def test_child_that_was_ready_once_is_never_given_up() -> None:
    # One broken replica of eight must not end the seven that serve.
    policy = RestartPolicy(LIMITS)
    policy.after_exit(1, ready_for_s=None)
    policy.after_exit(1, ready_for_s=5.0)
    for exit_code in (1, EXIT_CONFIGURATION) * 10:
        assert policy.after_exit(exit_code, ready_for_s=None) is not None


def test_ready_for_no_time_at_all_still_counts_as_ready() -> None:
    policy = RestartPolicy(LIMITS)
    assert policy.after_exit(EXIT_CONFIGURATION, ready_for_s=0.0) == 0.1


def test_replica_that_fails_now_and_then_comes_back_at_once() -> None:
    # 9 s is what a replica lives in bench.chaos. With a life of 30 s asked for, pauses grew to 10 s
    # and replicas were away half of the time.
    policy = RestartPolicy(RestartLimits())
    delays = [policy.after_exit(-9, ready_for_s=9.0) for _ in range(20)]
    assert delays == [RestartLimits().first_delay_s] * 20


def test_replica_that_dies_right_after_its_start_waits_ever_longer() -> None:
    policy = RestartPolicy(RestartLimits())
    delays = [policy.after_exit(-9, ready_for_s=1.0) for _ in range(20)]
    assert delays[-1] == RestartLimits().max_delay_s
