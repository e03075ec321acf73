from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from synthetic_runs import (
    REAL_LOG_FILES,
    doubling,
    line_times,
    log_text,
    noisy,
    run_of,
    straight_run,
)

from commlab import cli
from commlab.units import GIB
from tools.lints.pages import ROOT

SIZES = doubling(8, 8 * GIB)
# The keys that programs may rely on.
KEYS = (
    "op n_ranks n_nodes rows skipped alpha_s beta_Bps alpha_ci beta_ci pieces median_rel_err "
    "heldout_median_rel_err warnings"
).split()


@pytest.fixture
def log(tmp_path):
    """A log of 8 H100s with α = 20 µs, β = 370 GB/s and 3 % noise."""
    path = tmp_path / "log.txt"
    path.write_text(log_text(straight_run(SIZES)), encoding="utf-8")
    return path


def fit_json(capsys, *arguments) -> dict:
    assert cli.main(["fit", "--json", *map(str, arguments)]) == cli.DONE
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_json_holds_what_programs_rely_on(log, capsys):
    (run,) = fit_json(capsys, log)["runs"]
    assert set(KEYS) <= set(run)
    assert (run["op"], run["n_ranks"], run["n_nodes"]) == ("all_reduce", 8, 1)
    assert (run["rows"], run["skipped"]) == (len(SIZES), 0)
    assert run["alpha_s"] == pytest.approx(20e-6, rel=0.05)
    assert run["beta_Bps"] == pytest.approx(370e9, rel=0.05)
    assert run["alpha_ci"][0] < run["alpha_s"] < run["alpha_ci"][1]
    assert run["beta_ci"][0] < run["beta_Bps"] < run["beta_ci"][1]
    assert run["alpha_per_message_s"] == pytest.approx(run["alpha_s"] / 14)
    assert (run["algorithm"], run["messages"], run["bus_factor"]) == ("ring", 14, 1.75)
    (piece,) = run["pieces"]
    assert (piece["alpha_s"], piece["beta_Bps"]) == (run["alpha_s"], run["beta_Bps"])
    assert 0 < run["median_rel_err"] < run["heldout_median_rel_err"] < 0.04
    assert all(set(warning) == {"code", "message"} for warning in run["warnings"])


def test_a_sweep_of_large_sizes_has_no_alpha_but_a_warning(tmp_path, capsys):
    path = tmp_path / "large.txt"
    path.write_text(log_text(straight_run(doubling(GIB, 16 * GIB))), encoding="utf-8")
    (run,) = fit_json(capsys, path)["runs"]
    assert run["alpha_s"] is run["alpha_ci"] is run["alpha_per_message_s"] is None
    assert run["beta_Bps"] == pytest.approx(370e9, rel=0.05)
    assert "alpha_not_determined" in [warning["code"] for warning in run["warnings"]]


def test_lines_that_were_not_understood_are_counted_and_shown(log, capsys):
    lines = log.read_text(encoding="utf-8").splitlines()
    (broken,) = [n for n, line in enumerate(lines) if line.split()[:1] == ["1024"]]
    lines[broken] = lines[broken].replace("1024", "10x24", 1)
    log.write_text("\n".join(lines), encoding="utf-8")
    (run,) = fit_json(capsys, log)["runs"]
    assert (run["rows"], run["skipped"]) == (len(SIZES) - 1, 1)
    assert run["skipped_lines"][0]["line"] == broken + 1
    assert cli.main(["fit", str(log)]) == cli.DONE
    assert f"line {broken + 1}" in capsys.readouterr().out


def test_the_report_names_alpha_beta_pieces_and_outliers(tmp_path, capsys):
    times = noisy(line_times(SIZES, "all_reduce", 8, 20e-6, 370e9), 0.02, 0)
    times[20:] += 150e-6
    times[12] *= 3
    path = tmp_path / "log.txt"
    path.write_text(log_text(run_of(SIZES, times)), encoding="utf-8")
    assert cli.main(["fit", str(path)]) == cli.DONE
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("all_reduce, 8 ranks on 1 node", "per call", "per message", "GB/s", "held out"):
        assert word in out
    assert "32 KiB" in out and "[outlier]" in out and "[regimes]" in out
    assert f"{len(SIZES) - 1} of {len(SIZES)} rows" in out


def test_standard_input_is_read(log, capsys, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(log.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    from_stdin = fit_json(capsys, "-")["runs"]
    from_file = fit_json(capsys, log)["runs"]
    assert from_stdin[0].pop("log") == "-"
    assert from_file[0].pop("log") == str(log)
    assert from_stdin == from_file


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "no_rows"), ("hello\n", "no_rows"), (None, "no_file")],
)
def test_a_refusal_says_why_on_both_streams(tmp_path, capsys, text, code):
    path = tmp_path / "log.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert cli.main(["fit", "--json", str(path)]) == cli.REFUSED
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert set(error) == {"code", "message"} and error["code"] == code
    (line,) = err.splitlines()
    assert line == f"commlab fit: {path}: {error['message']}"
    assert cli.main(["fit", str(path)]) == cli.REFUSED
    assert capsys.readouterr() == ("", err)


def test_one_size_is_refused(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_text(log_text(straight_run([GIB])), encoding="utf-8")
    assert cli.main(["fit", "--json", str(path)]) == cli.REFUSED
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "few_points"


def test_a_refused_log_keeps_no_other_from_its_report(log, tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("", encoding="utf-8")
    assert cli.main(["fit", "--json", str(empty), str(log)]) == cli.REFUSED
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert [run["log"] for run in content["runs"]] == [str(log)]
    assert [refusal["log"] for refusal in content["refused"]] == [str(empty)]
    assert err.startswith(f"commlab fit: {empty}: ")


def test_op_and_ranks_may_be_given(log, tmp_path, capsys):
    rows = [line for line in log.read_text(encoding="utf-8").splitlines() if line[:1] == " "]
    bare = tmp_path / "bare.txt"
    bare.write_text("\n".join(rows), encoding="utf-8")
    (run,) = fit_json(capsys, bare, "--op", "all_reduce", "--ranks", "8")["runs"]
    assert (run["op"], run["n_ranks"]) == ("all_reduce", 8)
    assert "n_ranks" in run["inferred"]
    assert cli.main(["fit", str(log), "--op", "all_together"]) == cli.REFUSED
    assert "no test 'all_together'" in capsys.readouterr().err


def test_plot_and_calibration_are_written(log, tmp_path, capsys):
    plot, out = tmp_path / "plot.png", tmp_path / "calibration.json"
    content = fit_json(capsys, log, "--plot", plot, "--out", out)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert json.loads(out.read_text(encoding="utf-8")) == content
    for option in ("--plot", "--out"):
        assert cli.main(["fit", str(log), option, str(tmp_path / "no" / "x.png")]) == cli.REFUSED
        printed, err = capsys.readouterr()
        assert printed == "" and "there is no folder" in err


def test_help_says_what_alpha_and_beta_mean(capsys):
    with pytest.raises(SystemExit):
        cli.main(["fit", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for word in ("seconds per call", "bus bandwidth", "alpha_per_message_s", "Exit status"):
        assert word in told
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "nccl-tests" in capsys.readouterr().out


def test_fit_loads_neither_torch_nor_matplotlib(log):
    program = (
        "import sys; from commlab import cli; "
        f"status = cli.main(['fit', '--json', {str(log)!r}]); "
        "print(status, [m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines()[-1] == "0 []"


@pytest.mark.real_logs
def test_all_real_logs_at_once(capsys):
    paths = [str(path) for path in REAL_LOG_FILES]
    status = cli.main(["fit", "--json", *paths])
    out, err = capsys.readouterr()
    content = json.loads(out)
    refused = {refusal["log"] for refusal in content["refused"]}
    assert {run["log"] for run in content["runs"]} | refused == set(paths)
    assert status == (cli.REFUSED if refused else cli.DONE)
    assert len(err.splitlines()) == len(content["refused"])
