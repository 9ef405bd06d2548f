"""How many KV blocks a deployment has: usable memory less weights, activations and the runtime's own share.

Counted for each pipeline stage on one of its GPUs; the stage with the fewest blocks decides. Activations are
what an engine finds when it runs its largest iteration before allocating the cache. Left out: CUDA graphs,
fragmentation, and workspaces of single kernels. Forward buffers are freed before sampling, which the sum of
both does not credit: a little pessimistic for small budgets beside a large vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.hardware import BYTES_PER_VALUE, GPUSpec, ModelSpec

GIB = 2**30

RUNTIME_BYTES = GIB // 2
"""CUDA context, loaded kernels and cuBLAS workspaces of one process, a round figure."""

COLLECTIVE_BYTES = GIB
"""NCCL channels and custom all-reduce buffers where a replica spans GPUs, a round figure (vLLM's start-up log
for Llama-3-8B, vllm-project/vllm#10511, shows 1.8 GiB more outside PyTorch with two GPUs than with one)."""

LOGIT_BYTES = 14
"""Bytes per sampled sequence and vocabulary entry: bf16 logits, then float32 logits, probabilities and
log-probabilities, on every rank after the gather."""

LARGEST_TENSOR_PARALLEL = 64


@dataclass(frozen=True, slots=True)
class KVCapacity:
    """Where one GPU's memory goes, in bytes, on the stage that has the fewest KV blocks."""

    stage: int
    memory_bytes: int
    usable_bytes: int
    weights_bytes: int
    activation_bytes: int
    runtime_bytes: int
    kv_bytes: int
    bytes_per_block: int
    num_blocks: int
    block_size_tokens: int
    max_iteration_tokens: int
    """Tokens of the largest iteration that the activations leave room for."""

    @property
    def tokens(self) -> int:
        """KV tokens that a replica can hold."""
        return self.num_blocks * self.block_size_tokens

    def describe(self) -> str:
        """The sum in words, one line."""
        return (
            f"{_gib(self.usable_bytes)} usable of {_gib(self.memory_bytes)}"
            f" - weights {_gib(self.weights_bytes)}"
            f" - activations {_gib(self.activation_bytes)} ({self.max_iteration_tokens} tokens)"
            f" - runtime {_gib(self.runtime_bytes)}"
            f" = KV {_gib(self.kv_bytes)}: {self.num_blocks} blocks, {self.tokens} tokens"
        )


def kv_capacity(model: ModelSpec, gpu: GPUSpec, scenario: Scenario) -> KVCapacity:
    """KV blocks of one replica; `memory.num_blocks` overrides the sum.

    Raises ConfigError for a split that the model does not allow, and for a model that does not fit, with the
    sum and the smallest tensor-parallel size that does.
    """
    tensor = scenario.parallel.tensor
    capacity = _worst_stage(model, gpu, scenario, tensor)
    if capacity.num_blocks < 1:
        raise ConfigError(
            f"{model.name} does not fit on {gpu.name} with parallel.tensor {tensor} and parallel.pipeline "
            f"{scenario.parallel.pipeline}: {capacity.describe()}; {_remedy(model, gpu, scenario)}"
        )
    return capacity


def max_model_len(model: ModelSpec, scenario: Scenario) -> int:
    """Most tokens of one request: the scenario's limit, else what the model was trained for."""
    return scenario.scheduler.max_model_len or model.max_position_embeddings


def activation_bytes_per_token(model: ModelSpec, tensor_parallel: int) -> int:
    """Peak bytes of intermediate values per token in a forward pass on one rank.

    The residual stream and the normalised input live through a layer (beside them the attention's output
    where the block is parallel). On top comes the larger of: queries, keys and values with the attention's
    output, and the MLP's first product with the activation's output.
    """
    qkv, o, up, down = model.linear_ops(tensor_parallel)
    streams = 3 if model.parallel_block else 2
    return BYTES_PER_VALUE * (streams * model.hidden_size + max(qkv.n + o.k, up.n + down.k))


def _remedy(model: ModelSpec, gpu: GPUSpec, scenario: Scenario) -> str:
    """The smallest tensor-parallel size that fits, in words."""
    for tensor in range(scenario.parallel.tensor + 1, LARGEST_TENSOR_PARALLEL + 1):
        if _allowed(model, tensor) and _worst_stage(model, gpu, scenario, tensor).num_blocks >= 1:
            return f"parallel.tensor {tensor} would fit"
    return "no parallel.tensor would fit: raise parallel.pipeline"


def _allowed(model: ModelSpec, tensor_parallel: int) -> bool:
    try:
        model.linear_ops(tensor_parallel)
    except ConfigError:
        return False
    return True


def _worst_stage(model: ModelSpec, gpu: GPUSpec, scenario: Scenario, tensor: int) -> KVCapacity:
    stages = range(scenario.parallel.pipeline)
    return min(
        (_stage_capacity(model, gpu, scenario, tensor, stage) for stage in stages),
        key=lambda capacity: capacity.num_blocks,
    )


def _stage_capacity(
    model: ModelSpec, gpu: GPUSpec, scenario: Scenario, tensor: int, stage: int
) -> KVCapacity:
    memory = scenario.memory
    usable = int(gpu.memory_bytes * memory.utilization)
    weights = _stage_weight_bytes(model, tensor, scenario.parallel.pipeline, stage)
    runtime = RUNTIME_BYTES + (COLLECTIVE_BYTES if tensor * scenario.parallel.pipeline > 1 else 0)
    is_last = stage == scenario.parallel.pipeline - 1
    logits = scenario.scheduler.max_num_seqs * model.vocab_size * LOGIT_BYTES if is_last else 0
    layers = model.layers_per_stage(scenario.parallel.pipeline)[stage]
    per_kv_token = model.kv_bytes_per_token(tensor, layers)
    per_token = activation_bytes_per_token(model, tensor)

    left = usable - weights - runtime - logits
    tokens = _largest_iteration(scenario, max_model_len(model, scenario), left // (per_token + per_kv_token))
    activations = tokens * per_token + logits
    bytes_per_block = per_kv_token * memory.block_size_tokens
    kv_bytes = usable - weights - runtime - activations
    return KVCapacity(
        stage=stage,
        memory_bytes=gpu.memory_bytes,
        usable_bytes=usable,
        weights_bytes=weights,
        activation_bytes=activations,
        runtime_bytes=runtime,
        kv_bytes=kv_bytes,
        bytes_per_block=bytes_per_block,
        num_blocks=memory.num_blocks or max(0, kv_bytes // bytes_per_block),
        block_size_tokens=memory.block_size_tokens,
        max_iteration_tokens=tokens,
    )


def _stage_weight_bytes(model: ModelSpec, tensor: int, pipeline: int, stage: int) -> int:
    """A stage's layers, the embedding on the first and the head on the last (one copy if tied and both)."""
    is_first, is_last = stage == 0, stage == pipeline - 1
    copies = int(is_first) + int(is_last)
    if model.tied_embeddings:
        copies = min(copies, 1)
    layers = model.layers_per_stage(pipeline)[stage]
    return layers * model.layer_weight_bytes(tensor) + copies * model.embedding_bytes(tensor)


def _largest_iteration(scenario: Scenario, max_len: int, tokens_that_fit: int) -> int:
    """Tokens of the largest iteration that the policy can form.

    Policies that chunk keep to the budget (decodes beyond it aside). The others put whole prompts into an
    iteration: one maximal request's worth (prefill-first and hybrid-only, by their own limit) or one for each
    sequence (Orca, request-level batching). Those are capped at what memory can hold, since each prompt token
    of an iteration needs its place in the KV cache as well.
    """
    scheduler = scenario.scheduler
    if scheduler.has_budget:
        return max(scheduler.token_budget, scheduler.max_num_seqs)
    prompts = 1 if scheduler.policy in ("prefill_first", "hybrid_only") else scheduler.max_num_seqs
    return max(scheduler.max_num_seqs, min(prompts * max_len, tokens_that_fit))


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
