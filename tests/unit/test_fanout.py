"""A fan-out does what a loop over the calls does, whatever the number of processes."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.search.fanout import fan_out

JOBS = [1, 2, 3]


@pytest.mark.parametrize("jobs", JOBS)
def test_outcomes_come_in_the_order_of_the_calls(jobs: int) -> None:
    def last_first(number: int) -> int:
        import time

        time.sleep((5 - number) * 0.05)
        return number * 10

    seen: list[int] = []
    assert fan_out(last_first, [(n,) for n in range(5)], jobs=jobs, on_done=seen.append) == seen
    assert seen == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.filterwarnings("error")
def test_the_first_call_that_fails_decides_what_is_told(jobs: int) -> None:
    """Later ones fail earlier here."""

    def fails(number: int) -> int:
        import time

        time.sleep((5 - number) * 0.1)
        if number:
            raise InputError(f"call {number}")
        return number

    seen: list[int] = []
    with pytest.raises(InputError, match="call 1"):
        fan_out(fails, [(n,) for n in range(5)], jobs=jobs, on_done=seen.append)
    assert seen == [0]


@pytest.mark.parametrize("jobs", JOBS)
def test_a_fault_is_raised_as_it_is(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError):
        fan_out(lambda number: 1 // number, [(n,) for n in (1, 0, 2)], jobs=jobs)
