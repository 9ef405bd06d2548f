"""Bad traces: each is refused with one clear line, and nothing else is ever raised."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.workload.traces import find_trace, read_trace

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
GOOD = HEADER + "0.5,10,2\n1.5,20,3\n"
JSON_ROW = '{"arrival_s": 0.5, "prompt_tokens": 10, "output_tokens": 2}\n'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"

CASES: dict[str, tuple[str | bytes, list[str]]] = {
    "empty": ("", ["is empty"]),
    "blank": (" \n\n", ["is empty"]),
    "bom-only": (b"\xef\xbb\xbf", ["is empty"]),
    "header-only": (HEADER, ["has a header and no requests"]),
    "missing-column": (
        "arrival_s,prompt_tokens\n1,2\n",
        ["no column output_tokens", "found: 'arrival_s, prompt_tokens'", "TIMESTAMP, ContextTokens"],
    ),
    "no-known-column": ("a,b\n1,2\n", ["no column prompt_tokens or output_tokens", "found: 'a, b'"]),
    "no-header": ("0.5,10,2\n1.5,20,3\n", ["no column", "found: '0.5, 10, 2'"]),
    "semicolons": (GOOD.replace(",", ";"), ["no column", "arrival_s;prompt_tokens;output_tokens"]),
    "repeated-column": ("prompt_tokens,prompt_tokens,output_tokens\n1,1,1\n",
                        ["'prompt_tokens'", "once"]),
    "azure-without-time": ("ContextTokens,GeneratedTokens\n1,2\n", ["no column TIMESTAMP"]),
    "short-row": (GOOD + "2.5,30\n", ["line 4: 2 fields, where the header has 3"]),
    "long-row": (GOOD + "2.5,30,4,5\n", ["line 4: 4 fields"]),
    "negative-prompt": (GOOD + "2,-30,4\n", ["prompt_tokens is '-30'", "whole number", "1 to 10000000"]),
    "zero-prompt": (GOOD + "2,0,4\n", ["line 4: prompt_tokens is '0'"]),
    "zero-output": (GOOD + "2,30,0\n", ["line 4: output_tokens is '0'"]),
    "nan-output": (GOOD + "2,30,nan\n", ["line 4: output_tokens is 'nan'"]),
    "infinite-prompt": (GOOD + "2,inf,1\n", ["line 4: prompt_tokens is 'inf'"]),
    "fractional-length": (GOOD + "2,30.5,4\n", ["line 4: prompt_tokens is '30.5'", "whole number"]),
    "huge-length": (GOOD + "2,99999999999,4\n", ["line 4: prompt_tokens is '99999999999'"]),
    "empty-cell": (GOOD + "2,,4\n", ["line 4: prompt_tokens is ''"]),
    "word-for-length": (GOOD + "2,many,4\n", ["line 4: prompt_tokens is 'many'"]),
    "thousands-separator": (GOOD + '2,"1,000",4\n', ["line 4: prompt_tokens is '1,000'"]),
    "word-for-time": (GOOD + "soon,30,4\n", ["line 4: arrival_s is 'soon'", "seconds from the start"]),
    "nan-time": (GOOD + "nan,30,4\n", ["line 4: arrival_s is 'nan'"]),
    "negative-time": (HEADER + "-1,30,4\n", ["line 2: arrival_s is '-1'", "0 to 1e9"]),
    "epoch-time": (HEADER + "1777142838.3,30,4\n", ["line 2: arrival_s is '1777142838.3'", "from the start"]),
    "unsorted": (GOOD + "1.25,30,4\n", ["line 4: arrival_s is earlier", "sort the file by arrival_s"]),
    "unsorted-after-blank": (GOOD + "\n\n1.25,30,4\n", ["line 6: arrival_s is earlier"]),
    "unsorted-dates": (AZURE + "2023-11-16 18:15:46.67,9,9\n", ["line 3: TIMESTAMP is earlier"]),
    "bad-date": (AZURE + "16/11/2023 18:15,9,9\n", ["line 3: TIMESTAMP is '16/11/2023 18:15'", "2023-11-16"]),
    "number-for-date": (AZURE + "12.5,9,9\n", ["line 3: TIMESTAMP is '12.5'"]),
    "open-quote": (GOOD + '2,"30,4\n', ["line 4", "unexpected end of data"]),
    "latin-1": (GOOD.encode() + b"2,30,4\xe9\n", ["line 4: byte 0xe9 is not UTF-8"]),
    "utf-16": (GOOD.encode("utf-16"), ["UTF-16", "save it as UTF-8"]),
    "binary": (bytes(range(256)), ["binary"]),
    "gzip": (b"\x1f\x8b\x08" + bytes(20), ["compressed"]),
    "bad-blocks": ("prompt_tokens,output_tokens,block_ids\n32,1,1 x\n", ["line 2: block_ids is '1 x'"]),
    "too-many-blocks": (
        "prompt_tokens,output_tokens,block_ids\n32,1,1 2\n32,1,1 2 3\n",
        ["line 3: block_ids has 3 ids for 32 prompt tokens"],
    ),
    "repeated-block": (
        "prompt_tokens,output_tokens,block_ids\n32,1,1 2\n48,1,3 7 7\n",
        ["line 3: block_ids has 7 more than once", "all that is before it"],
    ),
    "empty-class": ("prompt_tokens,output_tokens,class\n32,1,\n", ["line 2: class is ''"]),
    "json-array": ("[" + JSON_ROW + "]", ["JSON array", "one object on each line"]),
    "json-truncated": (JSON_ROW + JSON_ROW[:30], ["line 2: not one complete JSON object", "cut short"]),
    "json-pretty": (json.dumps(json.loads(JSON_ROW), indent=2), ["line 1: not one complete JSON object"]),
    "json-list-row": (JSON_ROW + "[1, 2]\n", ["line 2: not one complete JSON object"]),
    "json-missing-key": (JSON_ROW + '{"arrival_s": 1, "prompt_tokens": 3}', ["line 2: no key output_tokens"]),
    "json-no-known-key": ('{"prompt": 3}', ["no column prompt_tokens", "found: 'prompt'"]),
    "json-null": (JSON_ROW.replace("10", "null"), ["line 1: prompt_tokens is None"]),
    "json-true": (JSON_ROW.replace("10", "true"), ["line 1: prompt_tokens is True"]),
    "json-nan": (JSON_ROW.replace("0.5", "NaN"), ["line 1: arrival_s is nan"]),
    "json-list": (JSON_ROW.replace("10", "[10]"), ["line 1: prompt_tokens is [10]"]),
    "json-latin-1": (JSON_ROW.encode() + b'{"\xe9": 1}\n', ["line 2: byte 0xe9 is not UTF-8"]),
    "json-deep": ('{"a": ' + "[" * 100_000, ["line 1: not one complete JSON object"]),
    "json-long-number": (JSON_ROW.replace("10", "1" * 5000), ["line 1: not one complete JSON object"]),
    "parquet-damaged": (b"PAR1" + bytes(50), ["damaged Parquet file"]),
}  # fmt: skip


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_a_bad_file_gets_one_clear_line(tmp_path: Path, name: str) -> None:
    content, words = CASES[name]
    path = tmp_path / "trace.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    message = refusal(path)
    assert message.startswith(f"{path}")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    for word in words:
        assert word in message


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_device_is_no_trace() -> None:
    assert "not a regular file" in refusal(Path("/dev/null"))


@pytest.mark.parametrize(
    "name", ["chatt", "no/such.csv", "chat.csv.gz", "~nobody-here/x", "a\0b", "x" * 5000]
)
def test_a_missing_trace_is_answered_with_the_shipped_ones(name: str) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        find_trace(name)
    assert "shipped traces: chat, long-prompt, summarisation" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(GOOD)

    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        Path, "open", denied
    )  # file modes do not bind the superuser, so tests cannot use them
    assert "cannot be read (Permission denied)" in refusal(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1" + bytes(50))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'stallfree[parquet]'" in refusal(path)


def test_a_bad_parquet_cell_is_found_by_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"prompt_tokens": [1, 2, None], "output_tokens": [1, 1, 1]}), path)
    assert "row 3: prompt_tokens is None" in refusal(path)


FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEEDS = [GOOD.encode(), AZURE.encode(), (JSON_ROW * 2).encode()]


def survives(path: Path, content: bytes) -> None:
    """Either a sound trace or an InputError of one line."""
    path.write_bytes(content)
    try:
        trace = read_trace(path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert len(trace) > 0
        assert trace.prompt_tokens.min() >= 1
        assert trace.output_tokens.min() >= 1
    assert "\n" not in message


@FUZZ
@given(content=st.binary(max_size=300))
def test_random_bytes(tmp_path: Path, content: bytes) -> None:
    survives(tmp_path / "trace", content)


@FUZZ
@given(
    content=st.sampled_from(SEEDS),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=5
    ),
)
def test_mutated_traces(tmp_path: Path, content: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    for place, removed, added in edits:
        start = int(place * len(content))
        content = content[:start] + added + content[start + removed :]
    survives(tmp_path / "trace", content)


@FUZZ
@given(cells=st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8)), max_size=4))
def test_arbitrary_cells(tmp_path: Path, cells: list[tuple[str, str, str]]) -> None:
    for header in (HEADER, "TIMESTAMP,ContextTokens,GeneratedTokens\n"):
        text = header + "".join(",".join(row) + "\n" for row in cells)
        survives(tmp_path / "trace", text.encode("utf-8", "surrogatepass"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@FUZZ
@given(rows=st.lists(st.tuples(JSON_VALUES, JSON_VALUES, JSON_VALUES, JSON_VALUES), min_size=1, max_size=3))
def test_arbitrary_json_values(tmp_path: Path, rows: list[tuple[object, ...]]) -> None:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    survives(tmp_path / "trace", "\n".join(lines).encode())


@pytest.mark.parametrize("cut", range(0, 600, 37))
def test_truncated_parquet(tmp_path: Path, cut: int) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "whole"
    pq.write_table(pa.table({"prompt_tokens": [1, 2], "output_tokens": [1, 1]}), path)
    survives(tmp_path / "cut", path.read_bytes()[:cut])
