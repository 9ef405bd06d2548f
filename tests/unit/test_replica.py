"""The event loop: exact timelines with constant times, several stages, routing, simultaneous events."""

from __future__ import annotations

import numpy as np
import pytest
from builders import PerToken, make_request, make_scheduler, serve

from simulator.errors import ConfigError
from simulator.latency.model import ConstantLatency


def test_a_lone_request_takes_one_iteration_a_token() -> None:
    result = serve([make_request(prompt=5, output=3, arrival_s=2.0)], make_scheduler())
    requests = result.records.requests
    assert requests["scheduled_s"] == [2.0]
    assert requests["first_token_s"] == [3.0]
    assert requests["finished_s"] == [5.0]
    assert result.iterations == 3


def test_an_arrival_as_an_iteration_ends_is_seen_by_the_next_one() -> None:
    # 1.0 is added before and after the iteration's end on the clock, whichever event was created first.
    requests = [make_request(0, prompt=2, output=4), make_request(1, prompt=2, output=1, arrival_s=1.0)]
    result = serve(requests, make_scheduler())
    assert result.records.requests["scheduled_s"].tolist() == [1.0, 0.0]
    assert result.records.requests["finished_s"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_equal_stages_give_the_first_after_s_steps_and_then_one_a_step(stages: int) -> None:
    requests = [make_request(i, prompt=8, output=1) for i in range(50)]
    result = serve(requests, make_scheduler(budget=8), ConstantLatency(stages, 1.0))
    assert result.records.requests["finished_s"].tolist() == [float(stages + i) for i in range(50)]


def test_a_hop_delays_a_batch_but_not_the_stages() -> None:
    requests = [make_request(i, prompt=8, output=1) for i in range(5)]
    result = serve(requests, make_scheduler(budget=8), ConstantLatency(3, 1.0, hop_s=0.25))
    # The fourth batch waits for a place: three are in flight until 3.5.
    assert result.records.requests["finished_s"].tolist() == [3.5, 4.5, 5.5, 7.0, 8.0]


def test_the_slowest_stage_sets_the_pace() -> None:
    class Uneven(ConstantLatency):
        def stage_time_s(self, shape: object, stage: int) -> float:
            return (1.0, 3.0)[stage]

    requests = [make_request(i, prompt=8, output=1) for i in range(4)]
    result = serve(requests, make_scheduler(budget=8), Uneven(2))
    assert result.records.requests["finished_s"].tolist() == [4.0, 7.0, 10.0, 13.0]
    first, second = result.stages
    assert first["bubble_share"] == pytest.approx(1 - 4 / 13)
    assert second["bubble_share"] == pytest.approx(1 - 12 / 13)
    assert second["utilisation"] == pytest.approx(12 / 13)


def test_an_idle_replica_has_no_bubble() -> None:
    requests = [make_request(i, prompt=2, output=1, arrival_s=10.0 * i) for i in range(3)]
    result = serve(requests, make_scheduler(), ConstantLatency(1, 1.0))
    assert result.stages[0]["bubble_share"] == 0.0
    assert result.stages[0]["utilisation"] == pytest.approx(3 / 21)


def test_no_more_batches_in_flight_than_stages() -> None:
    requests = [make_request(i, prompt=8, output=6) for i in range(30)]
    result = serve(
        requests, make_scheduler(budget=8, max_num_seqs=4, num_blocks=999), ConstantLatency(3, 1.0)
    )
    start, end = (result.records.iterations[name] for name in ("start_s", "end_s"))
    in_flight = [int(((start <= at) & (end > at)).sum()) for at in start]
    assert max(in_flight) == 3


def test_two_decodes_share_each_iteration() -> None:
    requests = [make_request(0, prompt=4, output=3), make_request(1, prompt=4, output=3)]
    result = serve(requests, make_scheduler(budget=8), PerToken(1.0, 0.5))
    assert result.records.iterations["end_s"].tolist() == [5.0, 7.0, 9.0]
    assert result.records.iterations["num_decodes"].tolist() == [0, 2, 2]


def test_round_robin_takes_turns_and_least_outstanding_looks() -> None:
    # Request 0 is long; by the time that 2 arrives, replica 1 is empty again.
    def requests() -> list:
        return [
            make_request(0, prompt=4, output=20),
            make_request(1, prompt=4, output=1, arrival_s=0.5),
            make_request(2, prompt=4, output=1, arrival_s=5.25),
        ]

    def delay_of_last(routing: str) -> float:
        result = serve(requests(), [make_scheduler(), make_scheduler()], routing=routing)
        row = int(np.flatnonzero(result.records.requests["id"] == 2)[0])
        return float(result.records.requests["scheduled_s"][row] - 5.25)

    assert delay_of_last("round_robin") == 0.75  # waits for the iteration of replica 0
    assert delay_of_last("least_outstanding") == 0.0


def test_unknown_routing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"unknown routing 'random_robin' \(did you mean 'round_robin'"):
        serve([make_request()], make_scheduler(), routing="random_robin")


def test_replicas_share_the_load_evenly() -> None:
    requests = [make_request(i, prompt=8, output=1) for i in range(40)]
    result = serve(requests, [make_scheduler(budget=8) for _ in range(4)])
    assert result.makespan_s == 10.0
    assert result.iterations == 40
