"""Reading traces: every layout and format by its content, and what is forgiven."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.workload.traces import Trace, read_trace

OURS = "arrival_s,prompt_tokens,output_tokens\n0.5,10,2\n1.5,20,3\n"

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "trace.data"  # a suffix that says nothing
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def times(trace: Trace) -> list[float] | None:
    return None if trace.arrival_s is None else trace.arrival_s.tolist()


def lengths(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def test_our_csv(write: Write) -> None:
    trace = read_trace(write(OURS))
    assert trace.name == "trace"
    assert times(trace) == [0.5, 1.5]
    assert lengths(trace) == [(10, 2), (20, 3)]
    assert trace.block_ids is None
    assert trace.classes is None


def test_lengths_alone(write: Write) -> None:
    trace = read_trace(write("prompt_tokens,output_tokens\n10,2\n"))
    assert times(trace) is None
    assert lengths(trace) == [(10, 2)]


def test_columns_in_any_order_beside_others(write: Write) -> None:
    trace = read_trace(write("user,output_tokens, prompt_tokens\nann,2,10\n"))
    assert lengths(trace) == [(10, 2)]


@pytest.mark.parametrize(
    "content",
    [
        OURS.replace("\n", "\r\n"),
        "\ufeff" + OURS,
        OURS.rstrip("\n"),
        OURS + "\n\n  \n",
        "\n" + OURS,
        OURS.replace("10", '"10"').replace("arrival_s", '"arrival_s"'),
        OURS.replace("10", " 10 ").replace("20", "20.0"),
    ],
    ids=["crlf", "bom", "no-last-newline", "blank-tail", "blank-head", "quoted", "spaces-and-20.0"],
)
def test_harmless_variations_of_csv(write: Write, content: str) -> None:
    trace = read_trace(write(content))
    assert times(trace) == [0.5, 1.5]
    assert lengths(trace) == [(10, 2), (20, 3)]


def test_azure(write: Write) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    trace = read_trace(write("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows))
    assert times(trace) == [0, 4.314579]
    assert lengths(trace) == [(374, 44), (396, 109)]


def test_azure_with_time_zones_across_midnight(write: Write) -> None:
    rows = (
        "2024-05-10 23:59:59.500000+00:00,5,1\n2024-05-11 00:00:00+00:00,6,1\n2024-05-11 02:00:01+02:00,7,1\n"
    )
    trace = read_trace(write("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows))
    assert times(trace) == [0, 0.5, 1.5]


def test_mooncake_keeps_its_blocks(write: Write) -> None:
    rows = [
        {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 2500, "input_length": 1024, "output_length": 6, "hash_ids": [0, 2]},
    ]
    trace = read_trace(write("\n".join(map(json.dumps, rows))))
    assert times(trace) == [0, 2.5]
    assert lengths(trace) == [(600, 5), (1024, 6)]
    assert trace.block_ids is not None
    assert trace.block_ids.block_tokens == 512
    assert [trace.block_ids.of(i).tolist() for i in range(2)] == [[0, 1], [0, 2]]


def test_requests_of_a_vllm_run_count_from_the_first(write: Write) -> None:
    rows = [
        {"arrival_time": 1777142838.25 + i, "input_toks": 9, "output_toks": 4, "id": "x"} for i in range(2)
    ]
    assert times(read_trace(write("\n".join(map(json.dumps, rows)) + "\n"))) == [0, 1]


def test_vidur_with_and_without_arrivals(write: Write) -> None:
    bare = read_trace(write("num_prefill_tokens,num_decode_tokens,pd_ratio\n10,2,5.0\n"))
    assert times(bare) is None
    timed = read_trace(write("arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,10,2\n"))
    assert times(timed) == [0.25]


def test_classes_and_blocks_in_a_csv(write: Write) -> None:
    text = "prompt_tokens,output_tokens,class,block_ids\n32,1,chat,7 8\n9,1,code,\n40,1,chat,7 8 9\n"
    trace = read_trace(write(text))
    assert trace.classes is not None
    assert trace.classes.names == ("chat", "code")
    assert trace.classes.codes.tolist() == [0, 1, 0]
    assert trace.block_ids is not None
    assert [trace.block_ids.of(i).tolist() for i in range(3)] == [[7, 8], [], [7, 8, 9]]
    last = trace.take(trace.classes.codes[:2] + 1)  # rows 1 and 2
    assert last.block_ids is not None
    assert [last.block_ids.of(i).tolist() for i in range(2)] == [[], [7, 8, 9]]


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "trace.txt"
    columns = {
        "arrival_s": [0.0, 1.0],
        "prompt_tokens": [5, 6],
        "output_tokens": [1, 2],
        "block_ids": [[1], []],
    }
    pq.write_table(pa.table(columns), path)
    trace = read_trace(path)
    assert times(trace) == [0, 1]
    assert lengths(trace) == [(5, 1), (6, 2)]
    assert trace.block_ids is not None
    assert trace.block_ids.of(0).tolist() == [1]


def test_a_file_longer_than_a_block_is_read_whole(write: Write) -> None:
    count = 70_000
    text = "prompt_tokens,output_tokens\n" + "".join(f"{i + 1},{i % 9 + 1}\n" for i in range(count))
    trace = read_trace(write(text))
    assert trace.prompt_tokens.tolist() == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("name", "requests", "last_s"),
    [
        ("azure_2023_conv.csv", 19_366, 3501.721937),
        ("azure_2023_code.csv", 8_819, 3435.948056),
        ("mooncake_conversation.jsonl", 12_031, 3536.999),
        ("sharegpt_8k.csv", 30_731, None),
        ("arxiv_4k.csv", 28_257, None),
    ],
)
def test_real_traces(shared_data: Path, name: str, requests: int, last_s: float | None) -> None:
    trace = read_trace(shared_data / "traces" / name)
    assert len(trace) == requests
    assert (trace.arrival_s is None) == (last_s is None)
    if trace.arrival_s is not None:
        assert trace.arrival_s[-1] == pytest.approx(last_s, abs=1e-6)


def test_the_recorded_vllm_run_agrees_with_its_workload(shared_data: Path) -> None:
    folder = shared_data / "vllm_rtxpro6000_llama31_8b"
    asked, served = read_trace(folder / "workload.jsonl"), read_trace(folder / "requests.jsonl")
    assert lengths(asked) == lengths(served)
    assert asked.block_ids is not None
    assert len(asked.block_ids.of(0)) == asked.prompt_tokens[0] // 16
