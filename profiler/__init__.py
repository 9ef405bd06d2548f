"""Measures the kernels of LLM serving, imports others' measurements, and fits latency regressors to them."""
