"""Line charts as SVG text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from simulator.report.svg import Line, line_chart, ticks


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (2.34, [0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        (0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (248.0, [0, 50, 100, 150, 200, 250]),
    ],
)
def test_ticks_are_round_and_reach_the_largest_value(largest: float, expected: list[float]) -> None:
    assert ticks(largest) == pytest.approx(expected)


@pytest.mark.parametrize("largest", [0.003, 0.7, 1.01, 6.4, 99.0, 12345.0])
def test_ticks_are_few(largest: float) -> None:
    marks = ticks(largest)
    assert largest <= marks[-1] * 1.001
    assert 3 <= len(marks) <= 7


def test_a_chart_is_xml_with_its_lines_named() -> None:
    text = line_chart(
        "a < b", "x", "y", [Line("one & two", [(0, 0), (2, 1)], marked=True), Line("three", [(1, 3)])]
    )
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a < b", "one & two", "three"} <= set(words)
    assert text.count("<circle") == 2
    assert text.count('fill="none"') == 2


def test_points_lie_within_the_picture() -> None:
    text = line_chart("t", "x", "y", [Line("l", [(0, 0), (5, 7)], marked=True)])
    circles = [e.attrib for e in ElementTree.fromstring(text).iter() if e.tag.endswith("circle")]
    first, last = ((float(each["cx"]), float(each["cy"])) for each in circles)
    assert first[0] < last[0] <= 640
    assert 0 <= last[1] < first[1] <= 360
