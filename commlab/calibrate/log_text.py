"""From the bytes of a file to lines of text, whatever wrote them."""

from __future__ import annotations

import re

from commlab.calibrate.records import LogError

MAX_BYTES = 64 * 2**20

_MAGIC = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
)
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Colours and cursor movements of a terminal, and colours whose ESC was lost in a paste.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b\n]{0,999}(?:\x07|\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]{0,99}[ -/]{0,9}[@-~]"
    r"|\x1b[@-Z\\-_]"
    r"|\[\d{1,3}(?:;\d{1,3}){0,5}m"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]+")
# What web pages and chats make of a blank and of a #.
_TYPOGRAPHY = str.maketrans(dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " ") | {"\uff03": "#"})
_ALLOWED_CONTROLS = bytes([7, 8, 9, 10, 12, 13, 27])
_NO_TEXT = bytes(sorted(set(range(32)) - set(_ALLOWED_CONTROLS)))
_SAMPLE = 65536


def refuse_if_too_large(n_bytes: int) -> None:
    """Refuse what no log of nccl-tests comes near to."""
    if n_bytes > MAX_BYTES:
        raise LogError(
            "too_large",
            f"The log has {n_bytes / 2**20:.0f} MiB, more than the {MAX_BYTES // 2**20} MiB that "
            "are read: keep the table and its header (for example grep -v 'NCCL INFO').",
        )


def lines_of(data: bytes | str) -> list[str]:
    r"""Return the lines of a log, without colours and control characters.

    Bytes may be UTF-8, UTF-16 with or without a byte order mark, GBK, or ASCII with a few
    broken bytes. Lines may end in ``\n``, ``\r\n`` or ``\r``.

    Raises
    ------
    LogError
        ``too_large`` or ``not_text``.
    """
    refuse_if_too_large(len(data))
    text = data if isinstance(data, str) else _decode(data)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text or "\x9b" in text or "m" in text:
        text = _ESCAPES.sub("", text)
    text = _CONTROLS.sub("", text)
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _decode(data: bytes) -> str:
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise LogError(
                "not_text", f"This is {what}, not the text of a log: pass the text that is in it."
            )
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, errors="replace")
    if b"\x00" in data:
        utf16 = _utf16_without_mark(data)
        if utf16:
            return data.decode(utf16, errors="replace")
        # A few NULs (a file of a crashed machine), or UTF-16 that lost a byte on its way.
        data = data.replace(b"\x00", b"")
    sample = data[:_SAMPLE]
    n_controls = len(sample) - len(sample.translate(None, _NO_TEXT))
    if n_controls > 0.05 * len(sample):
        raise LogError(
            "not_text", "This file is binary, not a log: pass the text that nccl-tests printed."
        )
    return _decode_text(data)


def _utf16_without_mark(data: bytes) -> str | None:
    """Tell UTF-16 by where the NULs are: in every second byte of ASCII text."""
    even = data[0::2].count(0) / max(1, len(data) // 2)
    odd = data[1::2].count(0) / max(1, len(data) // 2)
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    if even > 0.4 and odd < 0.05:
        return "utf-16-be"
    return None


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        # Line by line, so that one broken byte costs one line.
        return "\n".join(map(_decode_line, re.split(rb"\r\n|\r|\n", data)))


def _decode_line(line: bytes) -> str:
    for encoding in ("utf-8", "gb18030"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")
