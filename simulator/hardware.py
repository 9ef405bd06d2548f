"""What is deployed and on what: model shapes, GPUs, links between them, and the engine's host time.

Shapes are those of dense decoder-only transformers with multi-head or grouped-query attention. Left out:
mixture of experts, latent attention, quantised weights, and layers that differ from one another.
Every per-rank figure follows Megatron tensor parallelism: columns of qkv, gate and up, rows of o and down,
and the vocabulary of the embedding and the head are split over the ranks.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import Field, PositiveFloat

from simulator.errors import ConfigError
from simulator.spec import Count, Spec

BYTES_PER_VALUE = 2  # bf16 and fp16, the two types modelled


class LinearOp(NamedTuple):
    """One matrix product of a rank: [tokens, k] x [k, n]."""

    name: str
    k: int
    n: int

    @property
    def weight_bytes(self) -> int:
        """Bytes of the rank's share of the weight matrix."""
        return self.k * self.n * BYTES_PER_VALUE


class ModelSpec(Spec):
    """The shape of a dense decoder-only transformer."""

    name: str
    num_layers: Count
    hidden_size: Count
    num_heads: Count
    num_kv_heads: Count
    head_dim: Count
    intermediate_size: Count
    gated_mlp: bool = True
    parallel_block: bool = False
    """Attention and MLP read the same input and share one all-reduce a layer (Falcon) instead of two."""
    vocab_size: Count
    tied_embeddings: bool = False
    max_position_embeddings: Count
    sliding_window: Count | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    dtype: Literal["bf16", "fp16"] = "bf16"
    source: str = ""

    def heads_per_rank(self, tensor_parallel: int) -> int:
        """Query heads of one rank; ConfigError where the ranks do not divide them."""
        return self._share("num_heads", self.num_heads, tensor_parallel)

    def kv_heads_per_rank(self, tensor_parallel: int) -> int:
        """KV heads of one rank; where the ranks outnumber the heads, each head is replicated."""
        if tensor_parallel > self.num_kv_heads and tensor_parallel % self.num_kv_heads == 0:
            return 1
        return self._share("num_kv_heads", self.num_kv_heads, tensor_parallel)

    def linear_ops(self, tensor_parallel: int) -> tuple[LinearOp, ...]:
        """The matrix products of one layer on one rank, in the order in which they run."""
        query = self.heads_per_rank(tensor_parallel) * self.head_dim
        key_value = 2 * self.kv_heads_per_rank(tensor_parallel) * self.head_dim
        inner = self._share("intermediate_size", self.intermediate_size, tensor_parallel)
        up = LinearOp("gate_up", self.hidden_size, 2 * inner)
        return (
            LinearOp("qkv", self.hidden_size, query + key_value),
            LinearOp("o", query, self.hidden_size),
            up if self.gated_mlp else LinearOp("up", self.hidden_size, inner),
            LinearOp("down", inner, self.hidden_size),
        )

    def lm_head(self, tensor_parallel: int) -> LinearOp:
        """The product that turns a hidden state into a rank's share of the logits."""
        return LinearOp("lm_head", self.hidden_size, math.ceil(self.vocab_size / tensor_parallel))

    def layer_weight_bytes(self, tensor_parallel: int) -> int:
        """Bytes of one layer's weights on one rank: products, biases of qkv, norms (replicated)."""
        ops = self.linear_ops(tensor_parallel)
        values = 2 * self.hidden_size
        if self.qkv_bias:
            values += ops[0].n
        if self.qk_norm:
            values += 2 * self.head_dim
        return sum(op.weight_bytes for op in ops) + values * BYTES_PER_VALUE

    def embedding_bytes(self, tensor_parallel: int) -> int:
        """Bytes of a rank's share of the input embedding; the head takes as many again unless tied."""
        return self.lm_head(tensor_parallel).weight_bytes

    def kv_bytes_per_token(self, tensor_parallel: int, layers: int) -> int:
        """Bytes of keys and values that one token leaves on one rank in `layers` layers."""
        return 2 * self.kv_heads_per_rank(tensor_parallel) * self.head_dim * BYTES_PER_VALUE * layers

    def num_parameters(self) -> int:
        """Parameters of the whole model, a tied embedding counted once."""
        embeddings = self.embedding_bytes(1) * (1 if self.tied_embeddings else 2)
        weight_bytes = self.num_layers * self.layer_weight_bytes(1) + embeddings
        return weight_bytes // BYTES_PER_VALUE + self.hidden_size  # the last norm

    def layers_per_stage(self, pipeline_parallel: int) -> tuple[int, ...]:
        """Layers of each pipeline stage; a remainder goes to the later stages, but never to the last.

        The last stage also runs the head, so it gets no extra layer (the rule that vLLM follows as well).
        """
        if not 1 <= pipeline_parallel <= self.num_layers:
            raise ConfigError(
                f"parallel.pipeline: {self.name} has {self.num_layers} layers, which cannot be split "
                f"into {pipeline_parallel} stages"
            )
        base, extra = divmod(self.num_layers, pipeline_parallel)
        first_extra = pipeline_parallel - 1 - extra
        return tuple(
            base + (first_extra <= stage < pipeline_parallel - 1) for stage in range(pipeline_parallel)
        )

    def _share(self, what: str, total: int, ranks: int) -> int:
        if ranks < 1 or total % ranks:
            raise ConfigError(
                f"parallel.tensor: {self.name} has {what} {total}, which {ranks} ranks cannot share equally"
            )
        return total // ranks


class GPUSpec(Spec):
    """One GPU: what it can reach at best, and the fractions that an analytic roofline should assume."""

    name: str
    memory_gib: float = Field(gt=0, le=1e6)
    """Usable memory as the driver reports it to a process, in GiB."""
    memory_bandwidth_gbps: PositiveFloat
    """Peak memory bandwidth, in 1e9 bytes per second."""
    tflops_bf16: PositiveFloat
    """Peak dense bf16 tensor throughput with float32 accumulation, in 1e12 operations per second."""
    sm_count: Count
    l2_mib: PositiveFloat
    launch_us: PositiveFloat
    """Least time that a kernel takes inside a CUDA graph, in microseconds."""
    gemm_efficiency: float = Field(gt=0, le=1)
    """Share of the peak throughput that a large matrix product reaches."""
    memory_efficiency: float = Field(gt=0, le=1)
    """Share of the peak bandwidth that a long stream reaches."""
    kernels: str | None = None
    """Name of the measured kernels shipped for this GPU; none: the roofline stands in."""
    cluster: str
    """Interconnect assumed where a scenario names none."""
    source: str = ""

    @property
    def memory_bytes(self) -> int:
        """Usable memory in bytes."""
        return int(self.memory_gib * 2**30)


class LinkSpec(Spec):
    """A path between GPUs, as one GPU sees it in one direction."""

    bandwidth_gbps: PositiveFloat
    """Bandwidth of one direction in 1e9 bytes (not bits) per second."""
    latency_us: PositiveFloat


class ClusterSpec(Spec):
    """How GPUs are joined: within pairs, within a node, and between nodes."""

    name: str
    gpus_per_node: Count
    intra_node: LinkSpec
    pair: LinkSpec | None = None
    """Faster link within pairs; groups of more than two GPUs fall back to `intra_node`."""
    inter_node: LinkSpec
    source: str = ""

    def num_nodes(self, world_size: int) -> int:
        """Nodes that a group of `world_size` neighbouring GPUs fills, the last one perhaps in part."""
        return math.ceil(world_size / self.gpus_per_node)

    def link(self, world_size: int) -> LinkSpec:
        """The slowest link that a group of `world_size` neighbouring GPUs has to cross."""
        if world_size <= 2 and self.pair is not None:
            return self.pair
        return self.intra_node if world_size <= self.gpus_per_node else self.inter_node

    def stage_link(self, tensor_parallel: int, pipeline_parallel: int) -> LinkSpec:
        """The slowest link between neighbouring stages of one replica, whose GPUs fill nodes in order."""
        return self.link(tensor_parallel * pipeline_parallel)


class EngineSpec(Spec):
    """What the serving engine's host code adds to an iteration."""

    name: str
    host_fixed_us: float = Field(ge=0)
    """Host time of an iteration whatever its batch: scheduling, preparing inputs, sampling, bookkeeping."""
    host_per_seq_us: float = Field(ge=0)
    """Host time added by each sequence of the batch."""
    asynchronous: bool
    """The host works while the device runs: the longer of the two counts, not their sum. In return an
    iteration is decided when the one before it starts (see docs/schedulers.md)."""
    decode_bandwidth_scale: float = Field(default=1.0, gt=0, le=1)
    """Share of the measured decode-attention speed that the engine's own attention path reaches."""
    source: str = ""
