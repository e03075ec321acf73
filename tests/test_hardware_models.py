"""Hardware, models and tables: counted figures, sources, refusals."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from commlab import hardware, models
from commlab.models import (
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    MIXTRAL_8X7B,
    TransformerShape,
    training_flops,
)
from commlab.tables import markdown_table, table

# ----------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (LLAMA3_8B, 8_030_261_248),
        (LLAMA3_70B, 70_553_706_496),
        (LLAMA3_405B, 405_853_388_800),
    ],
)
def test_counted_parameters_are_those_of_the_published_checkpoints(shape, published):
    assert shape.parameters == published


def test_parameters_of_a_shape_small_enough_to_count_by_hand():
    shape = TransformerShape("tiny", 1, 4, 2, 1, 2, 3, 5)
    query, key, value, output = 4 * 4, 4 * 2, 4 * 2, 4 * 4
    gate_up_down = 3 * 4 * 3
    norms = 3 * 4
    embedding_and_head = 2 * 5 * 4
    by_hand = query + key + value + output + gate_up_down + norms + embedding_and_head
    assert shape.parameters == by_hand


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint32])
def test_a_shape_takes_whole_numbers_of_numpy_without_overflow(kind):
    sizes = [
        kind(getattr(LLAMA3_405B, field.name)) for field in dataclasses.fields(LLAMA3_405B)[1:]
    ]
    shape = TransformerShape(LLAMA3_405B.name, *sizes)
    assert shape == LLAMA3_405B
    assert shape.parameters == LLAMA3_405B.parameters
    assert type(shape.layers) is int


def test_training_flops_of_a_shape_are_6_phi_d():
    assert LLAMA3_8B.training_flops(1e6) == 6 * LLAMA3_8B.parameters * 1e6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"hidden": 4096.0}, r"hidden is 4096\.0"),
        ({"vocab": True}, "vocab is True"),
        ({"kv_heads": 5}, "choose a kv_heads that divides heads"),
        ({"experts_per_token": 2}, "choose a smaller experts_per_token"),
    ],
)
def test_a_wrong_shape_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LLAMA3_8B, **change)


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf")])
def test_wrong_tokens_are_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        training_flops(1e9, tokens)


def test_a_mixture_of_experts_counts_all_experts_and_those_that_act():
    # The published checkpoint has 46 702 792 704 parameters; 2 of 8 experts act on a token.
    assert MIXTRAL_8X7B.parameters == 46_702_792_704
    one_expert = 3 * 4096 * 14336
    assert MIXTRAL_8X7B.active_parameters == 46_702_792_704 - 32 * 6 * one_expert
    assert LLAMA3_8B.active_parameters == LLAMA3_8B.parameters
    assert MIXTRAL_8X7B.training_flops(1.0) == 6 * MIXTRAL_8X7B.active_parameters


def test_attention_scores_by_counting_matrix_products():
    """Scores and their use cost 2 products of 2·sequence·width FLOPs a token, three times."""
    sequence = 4096
    plain, scored = (LLAMA3_8B.training_flops(1.0, length) for length in (0, sequence))
    one_layer_forward = 2 * (2 * sequence * LLAMA3_8B.heads * LLAMA3_8B.head_dim)
    assert scored - plain == pytest.approx(3 * LLAMA3_8B.layers * one_layer_forward, rel=1e-12)


@pytest.mark.parametrize("sequence", [-1, float("nan")])
def test_a_wrong_sequence_is_refused(sequence):
    with pytest.raises(ValueError, match="sequence"):
        LLAMA3_8B.training_flops(1e6, sequence)


# ----------------------------------------------------------------- hardware


def numbers_of(item: object) -> set[str]:
    """Return the names of the fields that hold a number."""
    fields = dataclasses.fields(item)
    return {f.name for f in fields if isinstance(getattr(item, f.name), float | int)}


@pytest.mark.parametrize(
    "item", [*hardware.ACCELERATORS, *hardware.LINKS], ids=lambda item: item.name
)
def test_every_figure_names_a_source(item):
    assert set(item.sources) == numbers_of(item)
    assert set(item.sources.values()) <= set(hardware.SOURCES)


def test_every_source_has_a_date_and_is_used():
    used = set()
    for item in (*hardware.ACCELERATORS, *hardware.LINKS):
        used |= set(item.sources.values())
    assert used == set(hardware.SOURCES)
    for source in hardware.SOURCES.values():
        assert source.title
        assert source.url.startswith("https://")
        assert source.date


@pytest.mark.parametrize("link", hardware.LINKS, ids=lambda link: link.name)
def test_rates_are_one_directional(link):
    """The vendor's headline counts both directions; what is usable is below the line rate."""
    assert link.headline is None or link.headline == 2 * link.beta
    assert link.usable is None or 0.5 * link.beta < link.usable < link.beta


def test_the_books_links_are_those_of_the_tables():
    assert hardware.NVLINK4_H100.beta == hardware.H100.scale_up == hardware.NVLINK == 450e9
    assert hardware.INFINIBAND_NDR.beta == hardware.INFINIBAND == 50e9
    assert hardware.ALPHA == 5e-6
    # 128b/130b coding: what PCIe 5 x16 can carry is just under the printed 64 GB/s.
    assert hardware.PCIE5_X16.beta > 32e9 * 16 / 8 * 128 / 130


# ----------------------------------------------------------------- tables and imports


def test_a_table_is_its_markdown():
    shown = table(("ranks N · 卡数 N", "time"), [(2, "2.40 ms"), (8, "a|b")])
    assert repr(shown) == shown._repr_markdown_() == shown.markdown
    assert shown.markdown.splitlines() == [
        "| ranks N · 卡数 N |    time |",
        "| :--------------- | ------: |",
        "| 2                | 2.40 ms |",
        "| 8                |    a\\|b |",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), []), "at least one column"),
        ((("a", "b"), [(1,)]), "row 1 has 1 cells but there are 2 headings"),
        ((("a", "b"), [(1, 2)], "lx"), "one letter l or r per column"),
        ((("a", "b"), [(1, "x\ny")]), "line break"),
    ],
)
def test_a_wrong_table_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        markdown_table(*arguments)


def test_the_science_loads_neither_torch_nor_matplotlib():
    code = (
        "import sys, commlab.budget, commlab.tables; "
        "print(sorted({'torch', 'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_models_are_listed():
    assert models.MODELS == (LLAMA3_8B, LLAMA3_70B, LLAMA3_405B)
