"""The atlas: an entry for every algorithm, facts that agree with the science, figures too."""

from __future__ import annotations

import ast
from collections import Counter
from fractions import Fraction

import nbformat
import numpy as np
import pytest
from matplotlib.figure import Figure

import commlab
from commlab import atlas
from commlab.algorithms import REGISTRY
from commlab.cost import COLLECTIVES
from commlab.explore import Explorer
from commlab.explore.atlas import entry
from commlab.figures import atlas as figures
from commlab.figures import style
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.units import GIB, KIB, MIB
from tests.notebook_explorers import NOTEBOOKS, explorers_of

(PAGE,) = (path for path in NOTEBOOKS if path.stem == "atlas")
CELLS = nbformat.read(PAGE, as_version=4).cells
KEYS = list(REGISTRY)
ADD_AN_ENTRY = (
    "every algorithm of the registry has exactly one entry in notebooks/atlas.ipynb. Add, below "
    'the heading of its collective, a Markdown cell with "### Name · 名字" and a few sentences '
    "in both languages, a cell show_source(<its builder>), and a cell "
    'entry("<collective>", "<name>", <N>); then run `make notebooks`.'
)


def calls_of(source: str, name: str) -> list[ast.Call]:
    """The calls of a plainly named function in a cell."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def entries() -> list[tuple[int, tuple[str, str], ast.Call]]:
    """Position, key and call of all entries of the page."""
    return [
        (position, tuple(ast.literal_eval(argument) for argument in call.args[:2]), call)
        for position, cell in enumerate(CELLS)
        if cell.cell_type == "code"
        for call in calls_of(cell.source, "entry")
    ]


def missing_and_extra(shown: list[tuple[str, str]]) -> str:
    """What has to be mended so that a page shows each algorithm once; empty if nothing."""
    counts = Counter(shown)
    faults = [f"{key} has no entry" for key in REGISTRY if key not in counts]
    faults += [f"{key} is no algorithm of the registry" for key in counts if key not in REGISTRY]
    faults += [f"{key} has {count} entries" for key, count in counts.items() if count > 1]
    return f"{'; '.join(faults)}: {ADD_AN_ENTRY}" if faults else ""


# The page


def test_every_algorithm_has_exactly_one_entry():
    complaint = missing_and_extra([key for _, key, _ in entries()])
    assert not complaint, complaint


def test_a_missing_a_doubled_and_an_unknown_entry_are_named():
    first, *others = KEYS
    assert f"{first} has no entry" in missing_and_extra(others)
    assert f"{first} has 2 entries" in missing_and_extra([first, *KEYS])
    assert "is no algorithm" in missing_and_extra([*KEYS, ("all_reduce", "wishful")])
    assert missing_and_extra(KEYS) == ""


@pytest.mark.parametrize(
    ("position", "key"), [(place, key) for place, key, _ in entries()], ids=str
)
def test_an_entry_has_a_heading_and_shows_the_source_of_its_builder(position, key):
    about, source = CELLS[position - 2], CELLS[position - 1]
    assert about.cell_type == "markdown"
    assert about.source.startswith("### "), ADD_AN_ENTRY
    (shown,) = calls_of(source.source, "show_source")
    names = [node.attr for node in shown.args if isinstance(node, ast.Attribute)]
    assert REGISTRY[key].builder.__name__ in names, ADD_AN_ENTRY


def test_entries_stand_below_the_heading_of_their_collective():
    heading = ""
    for cell in CELLS:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            heading = cell.id
        elif cell.cell_type == "code":
            for call in calls_of(cell.source, "entry"):
                collective = ast.literal_eval(call.args[0])
                assert heading == f"group-{collective.replace('_', '-')}"


def test_steppers_are_short_and_the_page_keeps_to_its_frames():
    explorers = explorers_of(PAGE)
    steppers = [explorer for explorer in explorers if explorer.play]
    assert len(steppers) == len(REGISTRY)
    assert max(len(explorer.states()) for explorer in steppers) <= 20
    assert sum(len(explorer.states()) for explorer in explorers) <= 450


# Facts


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_facts_agree_with_ledger_bounds_and_price(key):
    algorithm = REGISTRY[key]
    for n_ranks in filter(algorithm.supports, (4, 6, 7, 8)):
        facts = atlas.algorithm_facts(*key, n_ranks, ALPHA, NVLINK)
        book = commlab.ledger(algorithm.build(n_ranks))
        assert facts.distance.steps == book.n_steps
        assert (facts.distance.share, facts.max_sent) == (book.critical, book.max_sent)
        assert facts.max_received == book.max_received
        assert facts.distance.least_share == commlab.least_share(key[0], n_ranks)
        for each in facts.prices:
            formula = algorithm.closed_form(each.nbytes, n_ranks, ALPHA, NVLINK, **each.chosen)
            if algorithm.exact:
                assert each.seconds == pytest.approx(formula, rel=1e-12)
            assert each.seconds <= formula * (1 + 1e-12)
            bound = commlab.lower_bound(key[0], each.nbytes, n_ranks, ALPHA, NVLINK, facts.ports)
            assert each.seconds >= bound * (1 - 1e-12)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_listed_ranks_are_those_that_can_be_built(key):
    listed = set()
    for part in atlas.supported_ranks(*key).split(", "):
        first, _, last = part.partition("–")
        listed.update(range(int(first), int(last or first) + 1))
    for n_ranks in range(2, atlas.LARGEST_LISTED + 1):
        if n_ranks in listed:
            assert REGISTRY[key].build(n_ranks).n_ranks == n_ranks
        else:
            with pytest.raises(ValueError, match="needs"):
                REGISTRY[key].build(n_ranks)


def test_prices_take_the_best_k_and_counts_the_given_one():
    facts = atlas.algorithm_facts(
        "broadcast", "pipelined_chain", 8, ALPHA, NVLINK, pipeline_chunks=4
    )
    assert facts.distance.steps == 8 - 2 + 4
    assert facts.distance.share == Fraction(10, 4)
    best = [commlab.best_chain_chunks(size, 8, ALPHA, NVLINK) for size in atlas.SIZES]
    assert [each.chosen["pipeline_chunks"] for each in facts.prices] == best
    assert "(k = 4)" in repr(facts.table())


def test_halving_beta_changes_the_prices_and_no_count():
    whole, half = (
        atlas.algorithm_facts("all_reduce", "ring", 8, ALPHA, beta) for beta in (NVLINK, NVLINK / 2)
    )
    assert whole.distance == half.distance
    assert all(a.seconds < b.seconds for a, b in zip(whole.prices, half.prices, strict=True))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_overview_has_a_row_for_every_algorithm(collective):
    for n_ranks in (6, 8):
        text = repr(atlas.overview(collective, n_ranks, ALPHA, NVLINK, pipeline_chunks=8))
        rows = [line.split("|")[1].split()[0] for line in text.splitlines()[2:]]
        names = atlas.algorithm_names(collective)
        assert rows == [n for n in names if REGISTRY[collective, n].supports(n_ranks)]


def test_an_algorithm_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(ValueError, match=r"all_gather has no algorithm 'tree'.*bruck"):
        atlas.algorithm_facts("all_gather", "tree", 4, ALPHA, NVLINK)
    with pytest.raises(ValueError, match="power of two"):
        entry("all_gather", "recursive_doubling", 6, alpha=ALPHA, beta=NVLINK)


def test_an_entry_displays_its_facts_and_returns_its_stepper(capsys):
    explorer = entry("all_to_all", "two_level", 6, alpha=ALPHA, beta=NVLINK, gpus_per_node=3)
    assert isinstance(explorer, Explorer)
    assert len(explorer.states()) == 1 + 2 + 1
    assert "(g = 3)" in capsys.readouterr().out


# Choices


def test_choices_name_the_fastest_and_those_that_cost_the_same():
    text = repr(atlas.choices(commlab.flat_topology(8, ALPHA, NVLINK), (KIB, GIB)))
    rows = {line.split("|")[1].strip(): line for line in text.splitlines()[2:]}
    assert set(rows) == set(COLLECTIVES)
    assert "recursive_doubling = bruck" in rows["all_gather"]
    assert "halving_doubling, 4.21 ms" in rows["all_reduce"]


def test_price_curves_hold_what_best_algorithm_says():
    topology = commlab.node_topology(2, 4, ALPHA, NVLINK, INFINIBAND, ports=2)
    sizes = (KIB, MIB, GIB)
    curves = atlas.price_curves("all_reduce", topology, sizes)
    assert list(curves) == atlas.algorithm_names("all_reduce")
    for place, nbytes in enumerate(sizes):
        choice = commlab.best_algorithm("all_reduce", nbytes, topology)
        assert {each.algorithm: each.seconds for each in choice.candidates} == {
            name: seconds[place] for name, seconds in curves.items()
        }


# Figures


def drawn(draw, size=style.FIGURE_SIZE, **params):
    fig = Figure(figsize=size)
    return fig, draw(fig, **params)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_map_shows_distances_and_who_is_beaten_by_none(collective):
    fig, data = drawn(
        figures.distance_map, figures.MAP_SIZE, collective=collective, n_ranks=8, pipeline_chunks=4
    )
    needs = {}
    for name in atlas.algorithm_names(collective):
        algorithm = REGISTRY[collective, name]
        options = {"pipeline_chunks": 4} if "pipeline_chunks" in algorithm.options else {}
        ports = algorithm.ports(8)
        distance = commlab.distance_from_bounds(algorithm.build(8, **options), ports)
        assert data["steps"][name] == distance.latency_factor >= 1
        assert data["bytes"][name] == distance.bandwidth_factor >= 1
        needs[name] = (distance.steps, distance.share, ports)
    for name, mine in needs.items():
        beaten = any(
            other != mine and all(o <= m for o, m in zip(other, mine, strict=True))
            for other in needs.values()
        )
        assert (name in data["unbeaten"]) == (not beaten)
    dots = [line for line in fig.axes[0].lines if line.get_marker() == "o"]
    shown = sorted(point for line in dots for point in line.get_xydata().tolist())
    expected = [[data["steps"][name], data["bytes"][name]] for name in needs]
    np.testing.assert_allclose(shown, sorted(expected), rtol=1e-12)


def test_map_leaves_out_what_does_not_support_the_ranks():
    _, data = drawn(figures.distance_map, figures.MAP_SIZE, collective="all_gather", n_ranks=6)
    assert set(data["steps"]) == {"ring", "bruck"}


def test_more_chunks_take_more_steps_and_fewer_bytes():
    few, many = (
        drawn(
            figures.distance_map,
            figures.MAP_SIZE,
            collective="all_reduce",
            n_ranks=8,
            pipeline_chunks=k,
        )[1]
        for k in (2, 32)
    )
    for name in ("pipelined_chain", "pipelined_binary_tree", "double_binary_tree"):
        assert few["steps"][name] < many["steps"][name]
        assert few["bytes"][name] > many["bytes"][name]


def test_race_shows_multiples_of_the_fastest():
    sizes = (KIB, GIB)
    curves = {"here": {"ring": np.array([4.0, 2.0]), "naive": np.array([1.0, 8.0])}}
    fig, data = drawn(figures.price_race, curves=curves, sizes=sizes, machine="here")
    assert data["winners"] == ["naive", "ring"]
    np.testing.assert_array_equal(data["times"]["ring"], [4.0, 1.0])
    (ring,) = [line for line in fig.axes[0].lines if line.get_label() == "ring"]
    np.testing.assert_array_equal(ring.get_ydata(), [4.0, 1.0])


def test_race_is_not_decided_by_rounding():
    curves = {"here": {"ring": np.ones(2), "naive": np.full(2, 1 - 1e-15)}}
    _, data = drawn(figures.price_race, curves=curves, sizes=(KIB, GIB), machine="here")
    assert data["winners"] == ["ring", "ring"]


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 8, 72])
def test_a_switch_that_adds_exceeds_the_link_from_four_ranks_on(n_ranks):
    _, data = drawn(figures.in_network_bandwidth, n_ranks=n_ranks, alpha=ALPHA, beta=NVLINK)
    factor = 2 * (n_ranks - 1) / n_ranks
    seconds = commlab.in_network_allreduce_time(data["nbytes"], n_ranks, ALPHA, NVLINK)
    np.testing.assert_allclose(data["switch"], factor * data["nbytes"] / seconds, rtol=1e-12)
    assert (data["limit"] > NVLINK * (1 + 1e-12)) == (n_ranks > 3)
    assert (data["ring"] < NVLINK).all()
    assert (data["switch"] < data["limit"]).all()
    assert data["switch"][-1] == pytest.approx(data["limit"], rel=0.01)
