"""What a run tells: latencies of requests and tokens, throughput, how full the engine was, and stability.

TTFT: arrival to first output token. TBT: every gap between consecutive output tokens of one request (vLLM:
ITL), pooled over requests. TPOT: (last - first token) / (tokens - 1) of a request. Scheduling delay: arrival
to the first time a request is in a batch. All in seconds. Only finished requests count; those that arrive
before `warmup_s` are simulated but not counted, in rates as in latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.quantiles import LEVELS, summarise
from simulator.stability import stability_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.record import Records
    from simulator.workload import Classes

METRICS = ("ttft_s", "tbt_s", "tpot_s", "e2e_s", "scheduling_delay_s")


class TokenGaps(NamedTuple):
    """Gaps between consecutive output tokens, without a number for each.

    `gaps_s` are first those between neighbours on the token clock: a gap on the clock of a decode set belongs
    to all members of that moment, so each counts as often as `counts` says. After these come the gaps of one
    request each (between the end of its prefill and its first decode, or over a preemption), of the requests
    in rows `own_request`. `start` and `stop` bound each segment on the token clock; `owner` is the row of its
    request.
    """

    gaps_s: NDArray[np.float64]
    counts: NDArray[np.int32]
    own_request: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    owner: NDArray[np.int64]

    @classmethod
    def of(cls, records: Records, counted: NDArray[np.bool_]) -> TokenGaps:
        """All gaps of the requests that are `counted`."""
        times, start, stop = records.token_times_s, records.segments["start"], records.segments["stop"]
        owner = np.repeat(np.arange(len(counted)), records.requests["num_segments"])
        kept = counted[owner]
        start, stop, owner = start[kept], stop[kept], owner[kept]
        follows = owner[1:] == owner[:-1]
        own_s = (times[start[1:]] - times[stop[:-1] - 1])[follows]
        # Gap k lies between the tokens k and k + 1 of the clock; a segment has the gaps start .. stop - 2.
        # All in place: a million requests have tens of millions of gaps.
        num_shared = max(len(times) - 1, 0)
        gaps_s = np.empty(num_shared + len(own_s))
        np.subtract(times[1:], times[:-1], out=gaps_s[:num_shared])
        gaps_s[num_shared:] = own_s
        counts = np.zeros(len(gaps_s) + 1, dtype=np.int32)
        np.add.at(counts, start, 1)
        np.subtract.at(counts, stop - 1, 1)
        counts = np.cumsum(counts, out=counts, dtype=np.int32)[:-1]
        counts[num_shared:] = 1
        return cls(gaps_s, counts, owner[1:][follows], start, stop, owner)

    def late(self, bound_s: float, num_requests: int) -> NDArray[np.int64]:
        """How many gaps of each request exceed a bound."""
        num_shared = len(self.gaps_s) - len(self.own_request)
        late = self.gaps_s > bound_s
        positions = np.flatnonzero(late[:num_shared])
        shared = np.searchsorted(positions, self.stop - 1) - np.searchsorted(positions, self.start)
        return (
            np.bincount(self.owner, shared, num_requests)
            + np.bincount(self.own_request, late[num_shared:], num_requests)
        ).astype(np.int64)


def slo_class(key: str) -> str:
    """The class of requests that an SLO key bounds, `chat` of `chat.p99_tbt_ms`; "" for all requests."""
    return key.rpartition(".")[0]


def overall(slo: Mapping[str, float]) -> dict[str, float]:
    """The bounds on all requests together."""
    return {key: bound for key, bound in slo.items() if not slo_class(key)}


def split_slo_key(key: str) -> tuple[str, str, float]:
    """`p99_tbt_ms` as its statistic, its metric's key in `Result.metrics`, and the unit in seconds.

    A class before it is left out.
    """
    statistic, _, rest = key.rpartition(".")[2].partition("_")
    metric, _, unit = rest.rpartition("_")
    return statistic, f"{metric}_s", 1e-3 if unit == "ms" else 1.0


@dataclass(frozen=True)
class Result:
    """The outcome of one simulation; `to_dict` is its JSON."""

    records: Records = field(repr=False)
    rejections: tuple[tuple[int, str], ...]
    """Requests that could never run, by their number in the workload, and why."""
    slo: Mapping[str, float]
    warmup_s: float
    num_blocks: int
    """KV blocks of one replica."""
    preemptions: int
    recomputed_tokens: int
    stages: tuple[dict[str, float], ...]
    """`utilisation` and `bubble_share` of each stage of each replica."""
    extrapolated_share: float
    """Share of the predictions outside the measured range."""
    notes: tuple[str, ...]
    prefix_cache: Mapping[str, int] | None = None
    """`queried_tokens` of admitted contexts and the `hit_tokens` found; None without a prefix cache."""
    classes: Classes | None = None
    """The class of each request of the workload, where there are any."""
    unfinished_arrival_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    """When those arrived that had not finished where the run was cut off."""

    # Latencies.

    @cached_property
    def _counted(self) -> NDArray[np.bool_]:
        return self.records.requests["arrival_s"] >= self.warmup_s

    @cached_property
    def _gaps(self) -> TokenGaps:
        return TokenGaps.of(self.records, self._counted)

    @cached_property
    def _of_class(self) -> dict[str, NDArray[np.bool_]]:
        """Which of the finished requests are of each class."""
        if self.classes is None:
            return {}
        codes = self.classes.codes[self.records.requests["id"]]
        return {name: codes == code for code, name in enumerate(self.classes.names)}

    @cached_property
    def latencies(self) -> dict[str, NDArray[np.float64]]:
        """Latency of each finished request by metric, TBT excepted; NaN where it has no TPOT."""
        requests = self.records.requests
        arrival, first, finished = requests["arrival_s"], requests["first_token_s"], requests["finished_s"]
        gaps = requests["output_tokens"] - 1
        return {
            "ttft_s": first - arrival,
            "tpot_s": np.where(gaps > 0, (finished - first) / np.maximum(gaps, 1), np.nan),
            "e2e_s": finished - arrival,
            # An arrival can be handed over an ulp early, by the rounding of a delay on the clock.
            "scheduling_delay_s": np.maximum(requests["scheduled_s"] - arrival, 0.0),
        }

    @cached_property
    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Mean, percentiles and maximum of each latency, in seconds; None where there is none."""
        return self._summaries(self._counted, self._gaps)

    @cached_property
    def class_metrics(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """The same for each class of requests."""
        counted = {name: self._counted & members for name, members in self._of_class.items()}
        return {name: self._summaries(of, TokenGaps.of(self.records, of)) for name, of in counted.items()}

    def _summaries(self, counted: NDArray[np.bool_], gaps: TokenGaps) -> dict[str, dict[str, float | None]]:
        summaries = {"tbt_s": summarise(gaps.gaps_s, gaps.counts)}
        for metric, values in self.latencies.items():
            summaries[metric] = summarise(values[counted & ~np.isnan(values)])
        return {metric: summaries[metric] for metric in METRICS}

    # SLOs.

    def value(self, slo_key: str) -> float | None:
        """What an SLO key bounds, in the key's own unit; None where nothing was measured."""
        of_class = slo_class(slo_key)
        statistic, metric, unit_s = split_slo_key(slo_key)
        seconds = (self.class_metrics[of_class] if of_class else self.metrics)[metric][statistic]
        return None if seconds is None else seconds / unit_s

    def violations(self, slo: Mapping[str, float] | None = None) -> tuple[str, ...]:
        """The keys of an SLO (by default the scenario's) that are broken."""
        bounds = self.slo if slo is None else slo
        return tuple(key for key, bound in bounds.items() if (self.value(key) or 0.0) > bound)

    def meets(self, slo: Mapping[str, float] | None = None) -> bool:
        """Whether every bound of an SLO (by default the scenario's) holds."""
        return not self.violations(slo)

    @property
    def good_requests(self) -> int:
        """Counted requests that keep every bound of the SLO themselves, those of their class included.

        A bound on TTFT, TPOT, E2E or scheduling delay asks for the request's own value, whatever its
        statistic; `mean_tbt` asks for its TPOT; `p99_tbt` lets 1 % of its gaps exceed the bound, `max_tbt`
        none.
        """
        return int(self._good.sum())

    @cached_property
    def _good(self) -> NDArray[np.bool_]:
        good = self._counted.copy()
        gaps = self.records.requests["output_tokens"] - 1
        for key, bound in self.slo.items():
            statistic, metric, unit_s = split_slo_key(key)
            if metric == "tbt_s" and statistic != "mean":
                allowed = np.floor((1.0 - LEVELS.get(statistic, 1.0)) * gaps + 1e-9)
                kept = self._gaps.late(bound * unit_s, len(good)) <= allowed
            else:
                values = self.latencies["tpot_s" if metric == "tbt_s" else metric]
                kept = ~(values > bound * unit_s)
            of_class = slo_class(key)
            good &= kept | ~self._of_class[of_class] if of_class else kept
        return good

    # Rates and levels.

    @property
    def requests_completed(self) -> int:
        """Requests that finished, warm-up included."""
        return len(self.records.requests["id"])

    @property
    def requests_counted(self) -> int:
        """Those among them that arrived after the warm-up."""
        return int(self._counted.sum())

    @property
    def requests_unfinished(self) -> int:
        """Requests that had arrived and not finished where the run was cut off."""
        return len(self.unfinished_arrival_s)

    @property
    def requests_rejected(self) -> int:
        """Requests that could never run."""
        return len(self.rejections)

    @property
    def iterations(self) -> int:
        """Batches run, over all replicas."""
        return int(self.records.totals.sums["iterations"])

    @cached_property
    def makespan_s(self) -> float:
        """First arrival to last output token; zero where nothing finished."""
        requests = self.records.requests
        if not self.requests_completed:
            return 0.0
        return float(requests["finished_s"].max() - requests["arrival_s"].min())

    @property
    def throughput_rps(self) -> float:
        """Counted requests per second of the time in which they were served."""
        return self._per_second(self.requests_counted)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of counted requests per second of the time in which these were served."""
        return self._per_second(float(self.records.requests["output_tokens"][self._counted].sum()))

    @property
    def total_tokens_per_s(self) -> float:
        """The same of prompt and output tokens; work done twice counts once."""
        prompt_tokens = float(self.records.requests["prompt_tokens"][self._counted].sum())
        return self.output_tokens_per_s + self._per_second(prompt_tokens)

    @property
    def goodput_rps(self) -> float:
        """Counted requests that are good, per second likewise."""
        return self._per_second(self.good_requests)

    def _per_second(self, total: float) -> float:
        """A sum over counted requests by the time from their first arrival to their last token."""
        arrival = self.records.requests["arrival_s"][self._counted]
        if not len(arrival):
            return 0.0
        finished = self.records.requests["finished_s"][self._counted]
        return total / float(finished.max() - arrival.min())

    @cached_property
    def batch(self) -> dict[str, float]:
        """What iterations were made of: means over iterations, times in seconds."""
        sums, maxima = self.records.totals.sums, self.records.totals.maxima
        count = max(self.iterations, 1)
        decode_only, prefill_only = sums["decode_only"], sums["prefill_only"]
        return {
            "mean_num_decodes": sums["decodes"] / count,
            "mean_tokens": sums["tokens"] / count,
            "max_tokens": float(maxima["tokens"]),
            "share_decode_only": decode_only / count,
            "share_prefill_only": prefill_only / count,
            "share_mixed": (self.iterations - decode_only - prefill_only) / count,
            "mean_iteration_s": sums["duration_s"] / count,
            "max_iteration_s": float(maxima["duration_s"]),
        }

    @cached_property
    def kv(self) -> dict[str, float]:
        """KV blocks of a replica, and the share of them in use: mean over time at work, and maximum."""
        sums, maxima = self.records.totals.sums, self.records.totals.maxima
        return {
            "num_blocks": float(self.num_blocks),
            "mean_utilisation": sums["kv_block_seconds"] / (sums["duration_s"] or 1.0) / self.num_blocks,
            "max_utilisation": maxima["kv_blocks"] / self.num_blocks,
        }

    @cached_property
    def stability(self) -> str:
        """Whether the engine kept up: `stable`, `backlogged`, `overloaded`, or `n/a` for a burst."""
        requests, unfinished = self.records.requests, self.unfinished_arrival_s
        return stability_of(
            np.concatenate([requests["arrival_s"], unfinished]),
            np.concatenate([requests["finished_s"], np.full(len(unfinished), np.inf)]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; no NaN."""
        document: dict[str, Any] = {
            "metrics": self.metrics,
            "requests_completed": self.requests_completed,
            "requests_counted": self.requests_counted,
            "requests_unfinished": self.requests_unfinished,
            "requests_rejected": self.requests_rejected,
            "rejections": [{"request": number, "reason": reason} for number, reason in self.rejections],
            "iterations": self.iterations,
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            "makespan_s": self.makespan_s,
            "throughput_rps": self.throughput_rps,
            "output_tokens_per_s": self.output_tokens_per_s,
            "total_tokens_per_s": self.total_tokens_per_s,
            "goodput_rps": self.goodput_rps,
            "stability": self.stability,
            "slo": dict(self.slo),
            "violations": list(self.violations()),
            "batch": self.batch,
            "kv": self.kv,
            "stages": list(self.stages),
            "extrapolated_share": self.extrapolated_share,
            "notes": list(self.notes),
        }
        if self.prefix_cache is not None:
            document["prefix_cache"] = dict(self.prefix_cache)
        if self.classes is not None:
            document["classes"] = self._class_documents(self.classes)
        return document

    def _class_documents(self, classes: Classes) -> dict[str, Any]:
        """What is known of each class alone, by name."""
        rejected = classes.codes[[number for number, _ in self.rejections]]
        return {
            name: {
                "metrics": self.class_metrics[name],
                "requests_completed": int(self._of_class[name].sum()),
                "requests_rejected": int((rejected == code).sum()),
                "goodput_rps": self._per_second(int((self._good & self._of_class[name]).sum())),
            }
            for code, name in enumerate(classes.names)
        }
