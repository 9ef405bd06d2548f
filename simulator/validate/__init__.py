"""Recorded runs of real engines against the simulator: how far off is it?"""

from simulator.validate.read import read_run
from simulator.validate.recorded import RecordedRun

__all__ = ["RecordedRun", "read_run"]
