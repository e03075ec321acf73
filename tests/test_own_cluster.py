"""The page "Measure your own cluster": its sample logs, its figures, and a reader's own log."""

from __future__ import annotations

import sys
import types
import warnings
from datetime import UTC, datetime

import ipywidgets
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from commlab.calibrate import LogError, read_log
from commlab.calibrate.diagnose import NOTES
from commlab.calibrate.fit import fit_run
from commlab.calibrate.fit_log import fit_logs
from commlab.calibrate.sample import SAMPLES, main, sample_log, true_seconds
from commlab.cost import alpha_beta_ring_allreduce, alpha_beta_tree_allreduce
from commlab.explore.render import FIGURE_RC
from commlab.explore.upload import LogUpload, choose_log, uploaded_files
from commlab.figures import own_cluster
from commlab.hardware import ALPHA, NVLINK
from commlab.planner.published import GALLERY
from commlab.units import GIB, KIB, MIB
from tests.test_figures_inside import texts_at_the_edge

LOGS = {name: read_log(sample_log(name)) for name in SAMPLES}
FITTED = {name: fit_logs([(name, log)]).runs[0] for name, log in LOGS.items()}


def codes(name):
    """What is odd about a sample: the remarks that are no mere notes."""
    return [remark.code for remark in FITTED[name].remarks if remark.code not in NOTES]


# --- sample logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_fit_of_a_sample_finds_the_alpha_and_beta_it_was_made_with(name):
    sample, fit = SAMPLES[name], FITTED[name].fit
    assert fit.alpha.value == pytest.approx(sample.alpha, rel=0.05)
    assert fit.beta.value == pytest.approx(sample.beta, rel=0.05)
    assert fit.held_out_error() < 0.03
    assert len(fit.model.pieces) == len(sample.regimes)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_read_as_what_it_is(name):
    sample, log = SAMPLES[name], LOGS[name]
    (run,) = log.runs
    assert (run.op, run.n_ranks, run.n_nodes) == ("all_reduce", sample.n_ranks, sample.n_nodes)
    assert run.hardware == "NVIDIA H100 80GB HBM3"
    assert run.inferred == ()
    # The row that is cut off is the one line that cannot be understood.
    assert len(log.all_skipped()) == (sample.cut is not None)
    sizes = [row.nbytes for row in run.rows]
    assert len(sizes) == 24 - (sample.cut is not None)
    assert sample.cut not in sizes


def test_the_healthy_samples_are_healthy_and_the_sick_ones_have_their_sickness():
    assert codes("several_nodes") == []
    assert codes("one_node") == ["outlier"]
    assert codes("one_nic") == ["one_nic"]
    assert codes("collapse") == ["bandwidth_falls", "cliff"]


def test_the_disturbed_rows_of_a_sample_are_the_ones_left_out():
    left_out = {outlier.row.nbytes: outlier.reason for outlier in FITTED["one_node"].fit.outliers}
    assert left_out == {KIB: "cold", 64 * MIB: "off"}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_time_of_a_sample_never_falls_with_the_size(name):
    sizes = np.geomspace(KIB, 8 * GIB, 500)
    assert (np.diff(true_seconds(SAMPLES[name], sizes)) >= 0).all()


def test_a_sample_is_printed_and_an_unknown_one_is_refused(capsys):
    assert main(["one_nic"]) == 0
    assert capsys.readouterr().out == sample_log("one_nic")
    with pytest.raises(ValueError, match="one_node, several_nodes"):
        sample_log("two_nodes")


# --- figures --------------------------------------------------------------------------------


def draw(function, monkeypatch, figsize=(5.6, 3.5), **params):
    """Draw a figure of the page; returns its data. No text may lie at its edge."""
    with warnings.catch_warnings(), mpl.rc_context(FIGURE_RC):
        warnings.simplefilter("error")
        fig = Figure(figsize=figsize, dpi=100)
        data = function(fig, **params)
        assert texts_at_the_edge(fig, monkeypatch) == []
    return data


def test_a_sweep_from_large_sizes_keeps_beta_and_loses_alpha(monkeypatch):
    run = LOGS["one_node"].runs[0]
    shown = [draw(own_cluster.sweep_from, monkeypatch, run=run, smallest=s) for s in (KIB, GIB)]
    whole, large = shown
    assert whole["alpha"] == fit_run(run).alpha.value
    assert large["alpha"] is None
    assert large["beta"] == pytest.approx(whole["beta"], rel=0.05)
    used = np.array(large["used"])
    assert large["nbytes"][used].min() == GIB
    assert not used[large["nbytes"] < GIB].any()


def test_the_fit_of_a_sweep_knows_nothing_of_smaller_rows(monkeypatch):
    run = LOGS["one_node"].runs[0]
    data = draw(own_cluster.sweep_from, monkeypatch, run=run, smallest=16 * MIB)
    second = SAMPLES["one_node"].regimes[1]
    assert data["alpha"] == pytest.approx(second.alpha, rel=0.1)


@pytest.mark.parametrize("n_ranks", [2, 8, 256])
def test_your_curves_are_those_of_your_constants(n_ranks, monkeypatch):
    alpha, beta = 2e-6, 300e9
    data = draw(
        own_cluster.ring_and_tree_of_yours, monkeypatch, n_ranks=n_ranks, alpha=alpha, beta=beta
    )
    for prefix, pair in (("", (alpha, beta)), ("book_", (ALPHA, NVLINK))):
        for curve, formula in (
            ("ring", alpha_beta_ring_allreduce),
            ("tree", alpha_beta_tree_allreduce),
        ):
            assert data[prefix + curve] == pytest.approx(formula(data["nbytes"], n_ranks, *pair))
    # The crossover is αβ times a number of N alone.
    expected = data["book_crossover"] * (alpha * beta) / (ALPHA * NVLINK)
    assert data["crossover"] == pytest.approx(expected)


def test_busbw_is_that_of_the_rows(monkeypatch):
    fits = {name: FITTED[name].fit for name in ("several_nodes", "one_nic", "collapse")}
    data = draw(own_cluster.busbw_of_runs, monkeypatch, fits=fits)
    assert list(data) == list(fits)
    for name, fit in fits.items():
        factor = 2 * (fit.run.n_ranks - 1) / fit.run.n_ranks
        rates = [factor * row.nbytes / row.seconds for row in fit.rows]
        assert data[name]["measured"] == pytest.approx(rates)
    assert data["collapse"]["measured"][-1] < 0.6 * data["collapse"]["measured"].max()


def test_the_gallery_shows_measurement_and_model_of_each_row(monkeypatch):
    height = own_cluster.gallery_height(len(GALLERY))
    data = draw(own_cluster.published_and_model, monkeypatch, figsize=(5.6, height), rows=GALLERY)
    assert data["measured"].tolist() == [row.measured for row in GALLERY]
    assert data["predicted"].tolist() == [row.predicted for row in GALLERY]
    assert data["share"] == pytest.approx([1 / (1 + row.error) for row in GALLERY])


# --- a reader's own log ---------------------------------------------------------------------

OWN = sample_log("one_nic")


def rows_of(log):
    return [(row.nbytes, row.seconds) for row in log.runs[0].rows]


@pytest.mark.parametrize(
    "value",
    [
        {"own.log": OWN.encode()},  # Colab
        {"own.log": {"metadata": {"name": "own.log"}, "content": OWN.encode()}},  # ipywidgets 7
        ({"name": "own.log", "content": memoryview(OWN.encode())},),  # ipywidgets 8
    ],
    ids=["colab", "ipywidgets 7", "ipywidgets 8"],
)
def test_an_upload_is_read_whatever_the_button(value):
    assert uploaded_files(value) == [("own.log", OWN.encode())]


def test_the_button_of_this_ipywidgets_is_read():
    upload = LogUpload()
    assert isinstance(upload.button, ipywidgets.FileUpload)
    assert upload.files == []
    with pytest.raises(LogError, match=r"run this cell again.*上传了 0 个"):
        choose_log(upload=upload, sample=sample_log("one_node"))
    upload.button.value = (
        {
            "name": "own.log",
            "type": "text/plain",
            "size": len(OWN),
            "content": memoryview(OWN.encode()),
            "last_modified": datetime(2026, 11, 29, tzinfo=UTC),
        },
    )
    name, log = choose_log(upload=upload, sample=sample_log("one_node"))
    assert name == "own.log"
    assert rows_of(log) == rows_of(LOGS["one_nic"])


def test_on_colab_its_own_dialog_opens(monkeypatch):
    colab = types.ModuleType("google.colab")
    colab.files = types.SimpleNamespace(upload=lambda: {"own.log": OWN.encode()})
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    name, log = choose_log(upload=LogUpload(), sample="")
    assert (name, rows_of(log)) == ("own.log", rows_of(LOGS["one_nic"]))


def test_a_path_a_pasted_text_and_the_sample_are_read(tmp_path):
    path = tmp_path / "own.log"
    path.write_text(OWN, encoding="utf-8")
    sample = sample_log("one_node")
    by_path = choose_log(path=path, sample=sample)
    pasted = choose_log(pasted="\n" + OWN, sample=sample)
    assert by_path[0] == "own.log"
    assert rows_of(by_path[1]) == rows_of(pasted[1]) == rows_of(LOGS["one_nic"])
    name, log = choose_log(pasted="\n \n", sample=sample)
    assert (name, rows_of(log)) == ("sample", rows_of(LOGS["one_node"]))


def test_two_logs_at_once_and_a_path_to_nothing_are_refused(tmp_path):
    with pytest.raises(LogError, match="Give one log"):
        choose_log(path=tmp_path / "own.log", pasted=OWN, sample="")
    with pytest.raises(LogError) as refusal:
        choose_log(path=tmp_path / "own.log", sample=sample_log("one_node"))
    assert refusal.value.code == "no_file"


def test_what_the_log_does_not_say_can_be_given():
    bare = "\n".join(line for line in OWN.splitlines() if not line.startswith("#"))
    _, log = choose_log(pasted=bare, sample="", op="all_gather", n_ranks=16, n_nodes=2)
    run = log.runs[0]
    assert (run.op, run.n_ranks, run.n_nodes) == ("all_gather", 16, 2)
