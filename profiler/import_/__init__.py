"""Readers of other people's kernel measurements; each writes a table of our one schema."""
