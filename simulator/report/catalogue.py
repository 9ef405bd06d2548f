"""The pages of `list`: what is shipped, by kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from simulator.latency.build import read_artefact
from simulator.load import load_cluster, load_engine, load_gpu, load_model, load_scenario
from simulator.report.documents import command_header
from simulator.report.numbers import significant
from simulator.report.page import Page, Table, table
from simulator.resources import config_path, list_configs

Row = dict[str, str]


def all_kinds_page() -> Page:
    """The names of every kind."""
    names = {kind: names_of(kind) for kind in KINDS}
    rows = [[kind, ", ".join(entries) or "none"] for kind, entries in names.items()]
    return Page(
        "Shipped (stallfree list KIND says more of each):",
        (table(("kind", "names"), rows, left=True),),
        document=command_header("list") | names,
    )


def kind_page(kind: str) -> Page:
    """One row for each entry of a kind."""
    rows = [{"name": name, **KINDS[kind](name)} for name in names_of(kind)]
    return Page(
        f"{len(rows)} {kind}.",
        (_table(rows),) if rows else (),
        document=command_header("list") | {kind: rows},
    )


def names_of(kind: str) -> list[str]:
    """Names of all entries of a kind."""
    if kind == "policies":
        from simulator.schedulers import POLICIES

        return list(POLICIES)
    if kind == "traces":
        from simulator.workload.traces import shipped_traces

        return sorted(shipped_traces())
    return list_configs(kind)


def _table(rows: list[Row]) -> Table:
    return table(list(rows[0]), [list(row.values()) for row in rows], left=True)


def _model(name: str) -> Row:
    model = load_model(name)
    return {
        "parameters": f"{model.num_parameters() / 1e9:.2f} B",
        "layers": str(model.num_layers),
        "hidden": str(model.hidden_size),
        "heads": f"{model.num_heads}/{model.num_kv_heads}",
        "longest": str(model.max_position_embeddings),
    }


def _gpu(name: str) -> Row:
    gpu = load_gpu(name)
    return {
        "memory": f"{significant(gpu.memory_gib)} GiB",
        "bandwidth": f"{significant(gpu.memory_bandwidth_gbps)} GB/s",
        "bf16": f"{significant(gpu.tflops_bf16)} TFLOPS",
        "kernels": gpu.kernels or "roofline",
        "cluster": gpu.cluster,
    }


def _cluster(name: str) -> Row:
    cluster = load_cluster(name)
    return {
        "in a node": f"{cluster.gpus_per_node} GPUs, {significant(cluster.intra_node.bandwidth_gbps)} GB/s",
        "in a pair": f"{significant(cluster.pair.bandwidth_gbps)} GB/s" if cluster.pair else "-",
        "between nodes": f"{significant(cluster.inter_node.bandwidth_gbps)} GB/s",
    }


def _engine(name: str) -> Row:
    engine = load_engine(name)
    return {
        "host": f"{engine.host_fixed_us:g} us + {engine.host_per_seq_us:g} us a sequence",
        "hidden behind the GPU": "yes" if engine.asynchronous else "no",
    }


def _scenario(name: str) -> Row:
    return {"description": load_scenario(name).description}


def _kernels(name: str) -> Row:
    path = config_path("kernels", name)
    if path.is_dir():
        return {"gpu": "-", "kind": "folder"}
    artefact = read_artefact(path)
    return {"gpu": str(artefact.get("gpu", "-")), "kind": str(artefact.get("kind", "-"))}


def _prices(name: str) -> Row:
    from simulator.search.prices import load_prices

    prices = load_prices(name)
    each = ", ".join(f"{gpu} {dollars:g}" for gpu, dollars in prices.usd_per_gpu_hour.items())
    return {"as of": prices.as_of, "dollars per GPU and hour": each}


def _trace(name: str) -> Row:
    from simulator.workload.traces import find_trace, read_trace

    trace = read_trace(find_trace(name))
    return {
        "requests": str(len(trace)),
        "mean prompt": significant(float(trace.prompt_tokens.mean())),
        "mean output": significant(float(trace.output_tokens.mean())),
        "times": "no" if trace.arrival_s is None else "yes",
    }


def _policy(name: str) -> Row:
    from simulator.schedulers import policy_named

    return {"what it does": (inspect.getdoc(policy_named(name)) or "").splitlines()[0]}


KINDS: dict[str, Callable[[str], Row]] = {
    "models": _model,
    "gpus": _gpu,
    "clusters": _cluster,
    "engines": _engine,
    "scenarios": _scenario,
    "kernels": _kernels,
    "prices": _prices,
    "traces": _trace,
    "policies": _policy,
}
