"""Memory: training state, shares of parameters, and activations tensor by tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given
from hypothesis import strategies as st

from commlab.budget import (
    H100_CLUSTER,
    Plan,
    activation_memory,
    gathered_bytes,
    gpt_layer_tensors,
    head_tensors,
    kept_bytes,
    llama_layer_tensors,
    parameter_share,
    training_state,
)
from commlab.models import LLAMA3_8B, LLAMA3_70B, MIXTRAL_8X7B, TransformerShape

TINY = TransformerShape("tiny", 2, 64, 4, 2, 24, 80, 96)

# ----------------------------------------------------------------- training state


@given(n_parameters=st.floats(1e6, 1e13), n_ranks=st.integers(1, 4096))
def test_each_zero_stage_stores_less_and_all_stages_agree_on_one_gpu(n_parameters, n_ranks):
    totals = [training_state(n_parameters, n_ranks, stage).total for stage in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == pytest.approx(16 * n_parameters)
    assert totals[1] == pytest.approx((4 + 12 / n_ranks) * n_parameters)
    assert totals[2] == pytest.approx((2 + 14 / n_ranks) * n_parameters)
    assert totals[3] == pytest.approx(16 / n_ranks * n_parameters)


@pytest.mark.parametrize("stage", range(4))
def test_fp32_and_whole_gradients(stage):
    bf16, fp32, whole = (
        training_state(1e9, 8, stage, gradient_bytes, whole_gradients)
        for gradient_bytes, whole_gradients in ((2, False), (4, False), (4, True))
    )
    assert fp32.gradients == 2 * bf16.gradients
    assert fp32.total - fp32.gradients == bf16.total - bf16.gradients
    assert whole.gradients == 4e9
    assert training_state(1e9, gradient_bytes=4).total == 18e9
    assert "gradients, BF16" in str(bf16)
    assert "gradients, FP32" in str(fp32)


# ----------------------------------------------------------------- shares of parameters


@pytest.mark.parametrize("shape", [LLAMA3_8B, LLAMA3_70B, MIXTRAL_8X7B], ids=lambda s: s.name)
@pytest.mark.parametrize("tensor", [1, 2, 8, 16])
@pytest.mark.parametrize("n_stages", [1, 2, 4])
@pytest.mark.parametrize("spread", [False, True])
def test_shares_add_up_to_the_model_and_its_copies(shape, tensor, n_stages, spread):
    expert = shape.n_experts if spread else 1
    shares = [parameter_share(shape, tensor, n_stages, expert, stage) for stage in range(n_stages)]
    experts = sum(share.layers * share.experts for share in shares)
    rest = sum(share.total for share in shares) - experts
    # Norms, router and last norm are whole on each GPU; so are K/V heads where they are few.
    per_layer = 2 * shape.hidden + shape.router_parameters
    norms = shape.layers * per_layer + shape.hidden
    key_and_value = 2 * shape.hidden * shape.kv_heads * shape.head_dim * shape.layers
    copies = max(1, tensor // shape.kv_heads)
    everything = tensor * rest + tensor * expert * experts
    assert everything == shape.parameters + (tensor - 1) * norms + (copies - 1) * key_and_value


def test_embedding_and_head_lie_on_the_outer_stages():
    first, inner, last = (parameter_share(LLAMA3_8B, 1, 4, stage=stage) for stage in (0, 1, 3))
    table = LLAMA3_8B.vocab * LLAMA3_8B.hidden
    assert (first.embedding, first.head) == (table, 0)
    assert inner.root == 0
    assert (last.embedding, last.head) == (0, table + LLAMA3_8B.hidden)
    assert inner.total == 8 * LLAMA3_8B.layer_parameters


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor": 6}, "32 heads, which 6 GPUs"),
        ({"n_stages": 5}, "32 layers, which cannot be divided evenly by 5"),
        ({"expert": 8}, "1 experts per layer"),
        ({"n_stages": 4, "stage": 4}, "stage must be one of"),
    ],
)
def test_shares_that_do_not_divide_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        parameter_share(LLAMA3_8B, **arguments)


def test_key_value_heads_and_vocabulary_must_divide_too():
    with pytest.raises(ValueError, match="3 K/V heads, which 2 GPUs"):
        parameter_share(replace(TINY, heads=6, kv_heads=3), 2)
    with pytest.raises(ValueError, match="rows of the vocabulary"):
        parameter_share(replace(TINY, vocab=97), 2)


# ----------------------------------------------------------------- activations: the paper


@given(
    hidden=st.integers(1, 500),
    heads=st.integers(1, 64),
    sequence=st.integers(1, 4096),
    micro_batch=st.integers(1, 8),
    t=st.integers(1, 16),
)
def test_the_gpt_list_adds_up_to_the_papers_formulas(hidden, heads, sequence, micro_batch, t):
    """Korthikanti et al. (2022), table 2: every row."""
    tensors = gpt_layer_tensors(hidden, heads, sequence, micro_batch)
    sbh = sequence * micro_batch * hidden
    scores = 5 * heads * sequence / hidden
    assert kept_bytes(tensors) == pytest.approx(sbh * (34 + scores))
    assert kept_bytes(tensors, t) == pytest.approx(sbh * (10 + 24 / t + scores / t))
    assert kept_bytes(tensors, t, True) == pytest.approx(sbh / t * (34 + scores))
    assert kept_bytes(tensors, t, False, "selective") == pytest.approx(sbh * (10 + 24 / t))
    assert kept_bytes(tensors, t, True, "selective") == pytest.approx(sbh * 34 / t)
    assert kept_bytes(tensors, t, False, "full") == pytest.approx(2 * sbh)


# ----------------------------------------------------------------- activations: Llama


class RMSNorm(torch.autograd.Function):
    """A fused norm: keeps its input and one FP32 number per row, as GPU kernels do."""

    @staticmethod
    def forward(ctx, x, weight):
        scale = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-5)
        ctx.save_for_backward(x, scale)
        return (x.float() * scale[..., None]).to(x.dtype) * weight


def llama_layer(shape: TransformerShape, x: torch.Tensor, flash: bool) -> set[int]:
    """Run one layer in BF16; return the weights' addresses, to tell them from activations.

    The rotary embedding is left out: its result is what Q and K are here.
    """
    generator = torch.Generator().manual_seed(0)

    def weight(*size: int) -> torch.nn.Parameter:
        values = torch.randn(size, generator=generator, dtype=torch.bfloat16)
        return torch.nn.Parameter(values / 8)

    heads, kv_heads, width = shape.heads, shape.kv_heads, shape.head_dim
    rows, length, hidden = x.shape
    norms = [weight(hidden) for _ in range(2)]
    q, k, v = (weight(count * width, hidden) for count in (heads, kv_heads, kv_heads))
    o, down = weight(hidden, heads * width), weight(hidden, shape.ffn)
    gate, up = weight(shape.ffn, hidden), weight(shape.ffn, hidden)

    def split(y: torch.Tensor, matrix: torch.Tensor, count: int) -> torch.Tensor:
        return functional.linear(y, matrix).view(rows, length, count, width).transpose(1, 2)

    y = RMSNorm.apply(x, norms[0])
    query, key, value = split(y, q, heads), split(y, k, kv_heads), split(y, v, kv_heads)
    if flash:
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
    else:
        grouped = query.reshape(rows, kv_heads, heads // kv_heads * length, width)
        scores = torch.softmax(grouped @ key.transpose(2, 3), dim=-1)
        mixed = (scores @ value).reshape(rows, heads, length, width)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(rows, length, heads * width), o)
    y = RMSNorm.apply(x, norms[1])
    inner = functional.silu(functional.linear(y, gate)) * functional.linear(y, up)
    _ = x + functional.linear(inner, down)
    weights = (*norms, q, k, v, o, gate, up, down)
    return {matrix.untyped_storage().data_ptr() for matrix in weights}


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("attention", ["flash", "scores"])
def test_the_llama_list_is_what_pytorch_keeps(rows, attention):
    """Every storage that autograd saves in one BF16 layer, counted once."""
    length = 32
    x = torch.randn(rows, length, TINY.hidden, dtype=torch.bfloat16).requires_grad_()
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # The tensor is held so that no later one can get its address.
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        weights = llama_layer(TINY, x, attention == "flash")
    measured = sum(nbytes for address, (nbytes, _) in kept.items() if address not in weights)
    counted = kept_bytes(llama_layer_tensors(TINY, length, rows, attention))
    assert measured == counted


def test_llama_coefficients_per_token():
    """The list by hand, for 8B: bytes per token of one layer."""
    shape, sequence = LLAMA3_8B, 8192
    per_token = kept_bytes(llama_layer_tensors(shape, sequence)) / sequence
    streams = 4 * 2 * shape.hidden
    heads = 2 * (2 * 32 + 2 * 8) * 128
    assert per_token == streams + heads + 4 * 32 + 4 * 2 * shape.ffn + 8
    with_scores = kept_bytes(llama_layer_tensors(shape, sequence, attention="scores")) / sequence
    assert with_scores - per_token == 2 * 32 * sequence - 4 * 32


def test_selective_recomputation_drops_scores_and_full_keeps_the_input():
    scores = llama_layer_tensors(LLAMA3_8B, 4096, attention="scores")
    flash = llama_layer_tensors(LLAMA3_8B, 4096)
    selective = kept_bytes(scores, recompute="selective")
    assert kept_bytes(scores) - selective == 2 * 32 * 4096 * 4096
    assert kept_bytes(flash, recompute="selective") == kept_bytes(flash)
    assert kept_bytes(flash, recompute="full") == 2 * 4096 * LLAMA3_8B.hidden


def test_experts_store_copies_of_their_tokens():
    dense = replace(MIXTRAL_8X7B, n_experts=1, experts_per_token=1)
    sizes = [kept_bytes(llama_layer_tensors(shape, 1024)) / 1024 for shape in (dense, MIXTRAL_8X7B)]
    more_mlp = 4 * 2 * MIXTRAL_8X7B.ffn
    assert sizes[1] - sizes[0] == more_mlp + 2 * 2 * 2 * MIXTRAL_8X7B.hidden + 4 * 8


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activation_memory_adds_layers_micro_batches_and_head(recompute):
    memory = activation_memory(
        LLAMA3_70B,
        4096,
        2,
        tensor_ranks=8,
        sequence_parallel=True,
        recompute=recompute,
        layers=20,
        in_flight=4,
    )
    tensors = llama_layer_tensors(LLAMA3_70B, 4096, 2)
    kept = kept_bytes(tensors, 8, True, recompute)
    head = kept_bytes(head_tensors(LLAMA3_70B, 4096, 2), 8, True)
    working = kept_bytes(tensors, 8, True) - kept
    assert memory.total == pytest.approx(20 * 4 * kept + head + working)
    assert (memory.working > 0) == (recompute == "full")
    elsewhere = activation_memory(LLAMA3_70B, 4096, 2, layers=20, head_in_flight=0)
    assert elsewhere.head == 0
    assert memory.tensor_table().markdown.count("\n") == 1 + len(tensors)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kept_bytes((), recompute="all"), "choose 'none', 'selective' or 'full'"),
        (lambda: activation_memory(TINY, 0), "sequence must be a whole number"),
        (lambda: activation_memory(TINY, 8, tensor_ranks=3), "choose a divisor"),
        (lambda: activation_memory(TINY, 8, attention="fast"), "choose 'flash' or 'scores'"),
        (lambda: activation_memory(TINY, 8, in_flight=0), "in_flight must be a number above"),
        (lambda: activation_memory(TINY, 8, head_in_flight=-50), "head_in_flight must be a whole"),
        (lambda: activation_memory(TINY, 8, head_in_flight=0.5), "head_in_flight must be a whole"),
        (lambda: activation_memory(TINY, 8, sequence_parallel="no"), "must be True or False"),
        (
            lambda: activation_memory(replace(TINY, heads=6, kv_heads=3), 8, tensor_ranks=2),
            "3 K/V heads, which 2 GPUs",
        ),
        (lambda: training_state(0), "n_parameters must be a number above zero"),
        (lambda: training_state("8B"), "n_parameters must be a number above zero"),
        (lambda: training_state(1e9, 0), "n_ranks must be a whole number"),
        (lambda: training_state(1e9, 8, 4), "choose 0 .* or 3"),
        (lambda: training_state(1e9, 8, 2, 3), r"choose 2 \(BF16\) or 4"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("shape", [LLAMA3_8B, LLAMA3_70B, MIXTRAL_8X7B], ids=lambda s: s.name)
@pytest.mark.parametrize("tensor", [1, 2, 4, 8, 16, 32])
def test_parameters_and_activations_of_keys_have_the_same_heads(shape, tensor):
    """Beyond one GPU per K/V head, each further GPU holds a copy of a whole head."""
    tokens = 512
    columns = parameter_share(shape, tensor).attention / (2 * shape.hidden)
    of_parameters = columns / shape.head_dim - shape.heads / tensor
    for tensors in (llama_layer_tensors(shape, tokens), llama_layer_tensors(shape, tokens // 2, 2)):
        for name in ("K", "V"):
            (stored,) = (item for item in tensors if item.name == name)
            nbytes = kept_bytes([stored], tensor)
            assert nbytes / (2 * tokens * shape.head_dim) == of_parameters
    everything = activation_memory(shape, tokens, tensor_ranks=tensor, sequence_parallel=True)
    whole = kept_bytes(llama_layer_tensors(shape, tokens))
    key_and_value = 2 * 2 * tokens * shape.kv_heads * shape.head_dim
    copies = max(1, tensor // shape.kv_heads)
    assert tensor * everything.layer == pytest.approx(whole + (copies - 1) * key_and_value)


# ----------------------------------------------------------------- gathered layers


def test_what_fsdp_holds_whole_while_it_computes():
    layer, root, layers = 10.0, 3.0, 6

    def gathered(**changes) -> float:
        plan = Plan(data=16, zero_stage=3, **changes)
        return gathered_bytes(layer, layers, root, plan.shards(H100_CLUSTER))

    gradients = 2 * (layer + root)
    two_layers = 2 * (2 * layer + root)
    assert gathered() == two_layers + gradients
    assert gathered(reshard_after_forward=False) == 2 * (layers * layer + root) + gradients
    assert gathered(reshard_after_forward=8) == gathered() + 2 * layers * layer / 8
    assert gathered(reduce_each_microbatch=False) == two_layers
    assert gathered(gradient_bytes=4) == two_layers + 2 * gradients
    one_layer = gathered_bytes(layer, 1, root, Plan(data=16, zero_stage=3).shards(H100_CLUSTER))
    assert one_layer == 2 * (layer + root) + gradients
    below = Plan(data=16, zero_stage=2).shards(H100_CLUSTER)
    assert gathered_bytes(layer, layers, root, below) == 0
