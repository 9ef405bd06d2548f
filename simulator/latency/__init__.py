"""Latency models: how long one iteration takes on one pipeline stage."""
