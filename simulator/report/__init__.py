"""Answers as a reader sees them: pages of text, and their formats."""

from simulator.report.formats import FORMATS, to_json, to_text
from simulator.report.page import Page

__all__ = ["FORMATS", "Page", "to_json", "to_text"]
