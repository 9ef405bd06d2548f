"""Attention backends, one library a file."""
