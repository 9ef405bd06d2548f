"""The command line; the one place that prints and exits."""

from simulator.cli.app import main

__all__ = ["main"]
