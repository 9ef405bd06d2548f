"""Discrete-event simulation of LLM serving on measured kernels."""

__version__ = "0.1.0"
