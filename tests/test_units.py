"""Sizes, rates and times: read and printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab.units import format_bytes, format_rate, format_seconds, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("64 MiB", 64 * 2**20),
        ("64MiB", 64 * 2**20),
        ("25 MB", 25_000_000),
        ("1.5 GiB", 3 * 2**29),
        ("1e9", 10**9),
        ("0", 0),
        (" 8 B ", 8),
        ("2 kib", 2048),
    ],
)
def test_parse_size(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "MiB", "-1 MiB", "1 parsec", "1 Mb/s", "nan"])
def test_parse_size_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (512, "512 B"), (1024, "1 KiB"), (1.5 * 2**20, "1.5 MiB"), (2**50, "1024 TiB")],
)
def test_format_bytes(nbytes: float, text: str) -> None:
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (4.24566e-3, "4.25 ms"),
        (85.9241e-6, "85.9 µs"),
        (0.9999e-3, "1 ms"),
        (3.5e-10, "0.35 ns"),
        (1234.5, "1234 s"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(450e9, "450 GB/s"), (3.35e12, "3.35 TB/s"), (999.96e6, "1 GB/s"), (5, "5 B/s")],
)
def test_format_rate(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@given(st.integers(0, 2**60))
def test_what_is_printed_reads_back_to_three_digits(nbytes: int) -> None:
    assert parse_size(format_bytes(nbytes)) == pytest.approx(nbytes, rel=5e-3, abs=0.5)


def test_a_size_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="'1e999' is too large for any memory"):
        parse_size("1e999")
