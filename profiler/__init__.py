"""Measures the kernels of LLM serving, imports other people's measurements, and fits latency regressors to them."""
