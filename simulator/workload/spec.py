"""What a workload is, as configuration: where lengths come from and when requests arrive.

Leaves out how they are drawn (`lengths`, `arrivals`) and how files are read (`traces`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from simulator.errors import suggest
from simulator.spec import Spec

MAX_TOKENS = 10_000_000
"""Longest prompt or output believed; longer ones are slips of a unit or a column."""

MAX_SECONDS = 1e9
"""Longest trace or run believed; larger times are dates or another unit, and too coarse for a clock."""

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
TokenMean = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
Positive = Annotated[float, Field(gt=0)]

LEAST_PHASE_S = 1e-3
"""Shorter than an iteration, phases would be a steady rate."""

PhaseSeconds = Annotated[float, Field(ge=LEAST_PHASE_S, le=MAX_SECONDS)]
CurveSeconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, strict=False)]
RelativeRate = Annotated[float, Field(ge=0, le=1e6)]
LEAST_PEAK = 1e-6
"""A curve that never rises above this is zero by a slip; its average could not be divided by."""

CoefficientOfVariation = Annotated[float, Field(ge=1e-3, le=1e3)]

NORMAL_P90 = 1.2815515655446004
"""90th percentile of the standard normal distribution."""


class Fixed(Spec):
    """Every length the same."""

    kind: Literal["fixed"] = "fixed"
    tokens: Tokens


class Range(Spec):
    """Lengths from `low` to `high`, both included."""

    low: Tokens
    high: Tokens

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self


class Tailed(Range):
    """A distribution with open tails: draws outside `low`..`high` are set to the nearer bound."""

    low: Tokens = 1
    high: Tokens = MAX_TOKENS


class Lognormal(Tailed):
    """Lognormal lengths, by their median and one of `sigma` (of the logarithm), `mean` or `p90`."""

    kind: Literal["lognormal"] = "lognormal"
    median: TokenMean
    sigma: Annotated[float, Field(ge=0, le=10)] | None = None
    mean: TokenMean | None = None
    p90: TokenMean | None = None

    @model_validator(mode="after")
    def _one_spread(self) -> Self:
        given = [key for key in ("sigma", "mean", "p90") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give one of sigma, mean, p90 beside median, not {' and '.join(given) or 'none'}"
            )
        for key in ("mean", "p90"):
            value = getattr(self, key)
            if value is not None and value < self.median:
                raise ValueError(f"{key} ({value:g}) is below the median ({self.median:g})")
        return self

    @property
    def log_sigma(self) -> float:
        """Standard deviation of the logarithm, from whichever spread was given."""
        if self.sigma is not None:
            return self.sigma
        if self.mean is not None:
            return math.sqrt(2 * math.log(self.mean / self.median))
        assert self.p90 is not None  # the validator saw to it
        return math.log(self.p90 / self.median) / NORMAL_P90


class Gamma(Tailed):
    """Gamma lengths, by their mean and either `shape` or `cv` (std / mean = 1 / sqrt(shape))."""

    kind: Literal["gamma"] = "gamma"
    mean: TokenMean
    shape: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    cv: CoefficientOfVariation | None = None

    @model_validator(mode="after")
    def _one_spread(self) -> Self:
        if (self.shape is None) == (self.cv is None):
            raise ValueError("give either shape or cv beside mean")
        return self

    @property
    def gamma_shape(self) -> float:
        """The shape parameter, from whichever spread was given."""
        if self.shape is not None:
            return self.shape
        assert self.cv is not None  # the validator saw to it
        return self.cv**-2


class Uniform(Range):
    """Whole numbers from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"


class Zipf(Range):
    """A power law cut at both ends: a length of k tokens, `low` <= k <= `high`, has weight k ** -alpha."""

    kind: Literal["zipf"] = "zipf"
    alpha: Annotated[float, Field(ge=0, le=20)]


class Quantiles(Spec):
    """An empirical distribution by quantiles, {0: 1, 0.5: 415, 0.9: 834, 1: 1024}; linear between them."""

    kind: Literal["quantiles"] = "quantiles"
    points: dict[Annotated[float, Field(ge=0, le=1, strict=False)], TokenMean]

    @model_validator(mode="after")
    def _a_distribution(self) -> Self:
        levels = sorted(self.points)
        if len(levels) < 2 or levels[0] != 0 or levels[-1] != 1:
            raise ValueError("points must run from quantile 0 (the smallest) to quantile 1 (the largest)")
        for lower, upper in pairwise(levels):
            if self.points[lower] > self.points[upper]:
                raise ValueError(f"points fall between the quantiles {lower:g} and {upper:g}: they must not")
        return self


Distribution = Fixed | Lognormal | Gamma | Uniform | Zipf | Quantiles
KINDS: tuple[str, ...] = tuple(spec.model_fields["kind"].default for spec in get_args(Distribution))


def _readable(value: Any) -> Any:
    """A bare number of tokens stands for a fixed length; an unknown kind is named with its neighbours."""
    if isinstance(value, int | float):
        return {"kind": "fixed", "tokens": value}
    if isinstance(value, Mapping) and value.get("kind") not in KINDS:
        raise ValueError(f"unknown kind {value.get('kind')!r}{suggest(str(value.get('kind')), KINDS)}")
    return value


LengthSpec = Annotated[Annotated[Distribution, Field(discriminator="kind")], BeforeValidator(_readable)]
"""One length distribution; a bare number means `fixed`."""


class Lengths(Spec):
    """Prompt and output lengths, drawn independently."""

    prompt: LengthSpec
    output: LengthSpec


class OnOff(Spec):
    """Bursts: the rate changes between two levels, each held for an exponential time."""

    on_s: Annotated[PhaseSeconds, Field(description="mean length of a burst")]
    off_s: Annotated[PhaseSeconds, Field(description="mean time between bursts")]
    off_share: float = Field(0.0, ge=0, lt=1, description="rate between bursts, as a share of that in them")


class ClassSpec(Spec):
    """One class of requests in a mix."""

    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """How often it comes, relative to the other classes."""
    trace: str | None = Field(None, min_length=1)
    lengths: Lengths | None = None

    @model_validator(mode="after")
    def _one_source_of_lengths(self) -> Self:
        if (self.trace is None) == (self.lengths is None):
            raise ValueError("give either trace or lengths")
        return self


Arrivals = Literal["auto", "trace", "poisson", "gamma", "constant", "on_off", "curve", "all_at_once"]


class WorkloadSpec(Spec):
    """The requests of a scenario: lengths from a trace or distributions, arrivals from it or a process.

    `arrivals: auto` replays the trace's own times if it has them and no `rate_rps` is given, and is Poisson
    at `rate_rps` otherwise. `arrivals: trace` with `rate_rps` stretches the trace's times to that mean rate.
    """

    trace: str | None = Field(None, min_length=1, description="name of a shipped trace, or path of a file")
    lengths: Lengths | None = Field(None, description="distributions in place of a trace")
    mix: dict[str, ClassSpec] | None = Field(
        None, min_length=1, description="classes of requests by name, in place of a trace"
    )
    num_requests: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="default: every request of the trace; 2048 with distributions or a mix"
    )
    arrivals: Arrivals = "auto"
    rate_rps: Positive | None = Field(None, description="mean requests per second")
    cv: CoefficientOfVariation | None = Field(
        None, description="gamma arrivals: std / mean of the gaps; above 1 is bursty"
    )
    on_off: OnOff | None = Field(None, description="on_off arrivals: the bursts")
    curve: dict[CurveSeconds, RelativeRate] | None = Field(
        None,
        description="curve arrivals: relative rate by seconds, as in {0: 1, 43200: 3, 86400: 1}; straight"
        " between the points, over again after the last one",
    )
    truncate_at: Positive | None = Field(
        None, description="poisson: longest gap, in mean gaps (the paper's artefact: 3); raises the real load"
    )
    speed: Positive = Field(1.0, description="replay of a trace's times: 2 is twice as fast")
    prompt_scale: Annotated[float, Field(ge=1e-3, le=1e3)] = Field(
        1.0, description="1.25: every prompt is a quarter longer, outputs are not"
    )
    max_total_tokens: Annotated[int, Field(ge=2, le=2 * MAX_TOKENS)] | None = Field(
        None, description="longest prompt + output accepted"
    )
    on_too_long: Literal["reject", "drop", "scale"] = Field(
        "reject",
        description="beyond max_total_tokens: turn away and count, leave out, or shrink both lengths",
    )

    def traces(self) -> tuple[str, ...]:
        """The traces that it names."""
        named = [self.trace, *(part.trace for part in (self.mix or {}).values())]
        return tuple(trace for trace in named if trace is not None)

    @model_validator(mode="after")
    def _one_source_of_lengths(self) -> Self:
        given = [key for key in ("trace", "lengths", "mix") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: set all but one of them to null")
        if not given:
            raise ValueError("give trace (a name or a path), lengths.prompt and lengths.output, or mix")
        if self.trace is None and self.arrivals == "trace":
            raise ValueError("arrivals: trace needs a trace")
        return self

    @model_validator(mode="after")
    def _arrival_keys_apply(self) -> Self:
        if (self.cv is not None) != (self.arrivals == "gamma"):
            raise ValueError("cv belongs to arrivals: gamma, which needs it")
        for key in ("on_off", "curve"):
            if (getattr(self, key) is not None) != (self.arrivals == key):
                raise ValueError(f"{key} belongs to arrivals: {key}, which needs it")
        if self.truncate_at is not None and self.arrivals not in ("auto", "poisson"):
            raise ValueError(f"truncate_at belongs to Poisson arrivals, not to {self.arrivals}")
        if self.arrivals == "all_at_once" and self.rate_rps is not None:
            raise ValueError("arrivals: all_at_once has no rate: set rate_rps to null")
        if self.speed != 1 and self.arrivals not in ("auto", "trace"):
            raise ValueError(f"speed belongs to the replay of a trace, not to {self.arrivals} arrivals")
        if self.speed != 1 and self.rate_rps is not None:
            raise ValueError("speed and rate_rps exclude each other: both say how fast requests arrive")
        return self

    @model_validator(mode="after")
    def _curve_is_a_rate(self) -> Self:
        if self.curve is not None and (min(self.curve) != 0 or len(self.curve) < 2):
            raise ValueError("curve needs a point at 0 s and at least one later")
        if self.curve is not None and max(self.curve.values()) < LEAST_PEAK:
            raise ValueError(
                f"curve is zero everywhere, or below {LEAST_PEAK:g}: no request would ever arrive"
            )
        if self.curve is not None and any(
            after - before < LEAST_PHASE_S for before, after in pairwise(sorted(self.curve))
        ):
            raise ValueError(f"curve needs {LEAST_PHASE_S:g} s or more between its points")
        return self
