"""Reruns the evaluation of a paper and sets our numbers beside the published ones."""

from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import Paper, load_paper
from simulator.reproduce.reproduction import Reproduction, reproduce

__all__ = ["Lab", "Paper", "Reproduction", "load_paper", "reproduce"]
