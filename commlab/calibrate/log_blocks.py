"""A log, cut into blocks: one run each, with its header, its rows as text and its end."""

from __future__ import annotations

import re

from commlab.calibrate import log_lines
from commlab.calibrate.log_fragments import has_gap, joined, quality_of, with_first_digits
from commlab.calibrate.log_header import Header, read_header
from commlab.calibrate.log_layout import FULL, columns_of_titles
from commlab.calibrate.log_lines import Device
from commlab.calibrate.log_parts import Block, Fragment
from commlab.calibrate.log_tokens import DTYPE_BYTES, Kinds
from commlab.calibrate.records import SkippedLine

# Where a row begins in a line that holds other text too: size, count and type of the elements.
_TYPE = "(?:" + "|".join(sorted(DTYPE_BYTES, key=len, reverse=True)) + r")(?!\S)"
_ROW = re.compile(
    r"(?<![\w.,])\d[\d,]{0,24}\s{1,60}\d[\d,]{0,24}\s{1,60}" + _TYPE,
    re.A,
)
# What is left of a row that lost its beginning to other text.
_PIECE_OF_ROW = re.compile(r"\d\s{1,60}" + _TYPE + r"(?:\s{1,40}[\w.+-]{1,20}){4}", re.A)
_COMMENTED_ROW = re.compile(r"\s{0,200}#+\s{0,200}" + _ROW.pattern, re.A)
# The line over the titles: with its #, without, or with what -I and others add.
_OVER_THE_TITLES = (["#", "out-of-place"], ["out-of-place", "in-place"], ["out-of-place", "(+"])
# As many commas in a line without blanks separate columns, not thousands.
_COMMAS = 5
_LONGEST_ROW = 1000
_DATA = ("row", "continuation", "skipped", "title")
_SHOWN = 200


class Scanner:
    """Reads a log line by line and says of every line what it is."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.marks: list[str] = []
        self.skipped: list[SkippedLine] = []
        self.errors: list[tuple[int, str]] = []
        self._kinds = Kinds()
        self._block: Block | None = None
        self._pending: Fragment | None = None
        self._command = Header()
        self._tag: int | None = None
        self._untagged = ""

    def scan(self, lines: list[str]) -> None:
        """Read all lines of a log."""
        for number, line in enumerate(lines, start=1):
            self.marks.append("")
            self._feed(number, line)
        self._flush()

    # -- one line ---------------------------------------------------------------------------

    def _feed(self, number: int, line: str) -> None:
        body = line[: log_lines.where_noise_begins(line)]
        noisy = len(body) < len(line)
        self._tag = None
        if "[" in body or "<" in body:
            body = log_lines.TAG.sub(self._note_tag, body)
        self._untagged = body
        tokens = body.replace("|", " ").split()
        if len(tokens) == 1 and body.count(",") >= _COMMAS:
            body = body.replace(",", " ")
            tokens = body.split()
        kinds = self._kinds.of(tokens)
        if kinds[:1] in ("w", "d", "h", "n"):
            body = log_lines.without_prefix(body)
            tokens = body.replace("|", " ").split()
            kinds = self._kinds.of(tokens)
        body = body.replace("|", " ")
        if tokens and "w" not in kinds:
            self._row_or_part(number, line, body, tokens, kinds, noisy)
        elif not self._row_with_words(number, body, tokens, kinds) and not self._rows_inside(
            number, body, noisy
        ):
            self._other_line(number, line, body, tokens, noisy)
            if self.marks[number - 1] not in _DATA and _PIECE_OF_ROW.search(line[:_LONGEST_ROW]):
                self._skip(number, line, "a piece of a row behind other text")

    def _note_tag(self, found: re.Match[str]) -> str:
        if self._tag is None and found[1] and ("," in found[0] or "<" in found[0]):
            self._tag = int(found[1])
        return ""

    def _other_line(
        self, number: int, line: str, bare: str, tokens: list[str], noisy: bool
    ) -> None:
        if noisy and not bare.strip():
            after = line[len(self._untagged) :]
            if _ROW.search(after) and self._rows_inside(number, after, noisy):
                return
            at = log_lines.where_the_test_speaks(after)
            if at < len(after):
                self._untagged = own = after[at:]
                self._other_line(number, own, own, own.split(), False)
                return
            self._mark(number, "error" if "NCCL WARN" in line else "noise")
            self._note_noise(number, line)
            return
        lower = bare[:_LONGEST_ROW].lower()
        if "time" in lower and ("bw" in lower or "size" in lower):
            titles = columns_of_titles(tokens)
            if titles:
                self._title(number, titles, lower)
                return
        above = tokens[:2] in _OVER_THE_TITLES or tokens[-2:] == ["out-of-place", "in-place"]
        if above or "(us)" in lower or "(gb/s)" in lower:
            self._mark(number, "title")
            self._note_unit(lower)
            return
        devices = log_lines.devices_in(bare)
        if devices:
            self._devices(number, bare, devices)
            return
        kind = log_lines.kind_of_line(line, bare)
        if kind == "comment" and _COMMENTED_ROW.match(bare):
            self._skip(number, line, "a row behind a #: it was taken out by hand")
        elif kind is None:
            self._skip(number, line, "not a line that nccl-tests or its surroundings print")
        else:
            self._known_line(number, line, bare, kind)

    def _known_line(self, number: int, line: str, bare: str, kind: str) -> None:
        self._mark(number, kind)
        if kind == "header":
            # With what looks like a prefix: "rccl-tests: Version …" is no line of a host.
            self._header(number, self._untagged)
        elif kind == "trailer":
            self._flush()
            self._trailer(bare)
        elif kind == "elision" and self._block:
            block = self._block
            (block.elided_rows if block.titles or block.rows else block.elided_devices).append(
                number
            )
        elif kind in ("noise", "error"):
            self._note_noise(number, line)

    # -- rows -------------------------------------------------------------------------------

    def _row_or_part(
        self, number: int, line: str, text: str, tokens: list[str], kinds: str, noisy: bool
    ) -> None:
        """Take a line of nothing but words that stand in rows."""
        if kinds.count("t") > 1 and self._rows_inside(number, text, noisy):
            return
        fragment = Fragment(number, text, tokens, kinds, has_gap(text), recovered=noisy)
        quality = quality_of(self._block, fragment)
        if quality == FULL:
            first = self._pending
            whole = first and with_first_digits(self._block, self._kinds, first, fragment)
            if whole:
                self._pending, fragment = None, whole
                self._mark(number, "continuation")
        elif self._joined(fragment, quality):
            return
        if quality == 0 and self._rows_inside(number, text, noisy):
            return
        titled = self._block is not None and self._block.titles is not None
        begins_a_row = kinds[0] == "i" and (titled or noisy or "t" in kinds)
        if quality == 0 and not begins_a_row:
            self._flush()
            self._skip(number, line, "numbers that fit no column")
            return
        self._take(fragment, quality)

    def _row_with_words(self, number: int, text: str, tokens: list[str], kinds: str) -> bool:
        """Take a row with columns of words where the titles name as many, or with labels inside."""
        if self._row_with_labels(number, tokens, kinds):
            return True
        titles = self._block.titles if self._block else None
        if not titles or len(tokens) != len(titles) or not kinds.strip("w"):
            return False
        fragment = Fragment(number, text, tokens, kinds, False)
        if quality_of(self._block, fragment) < FULL:
            return False
        self._take(fragment, FULL)
        return True

    def _row_with_labels(self, number: int, tokens: list[str], kinds: str) -> bool:
        """Take a row in which a launcher repeated its label ("0:", "node17:")."""
        both = list(zip(tokens, kinds, strict=True))
        kept = [word for word, kind in both if kind != "w" or word[-1] != ":"]
        kinds = self._kinds.of(kept)
        if len(kept) in (0, len(tokens)) or "w" in kinds:
            return False
        fragment = Fragment(number, " ".join(kept), kept, kinds, False, recovered=True)
        if quality_of(self._block, fragment) < FULL:
            return False
        self._take(fragment, FULL)
        return True

    def _rows_inside(self, number: int, text: str, noisy: bool) -> bool:
        """Take rows out of a line that holds other text, too."""
        starts = [found.start() for found in _ROW.finditer(text)]
        if not starts or _COMMENTED_ROW.match(text):
            return False
        taken = False
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            words = text[start:end].split()
            kinds = self._kinds.of(words)
            n_words = len(kinds) if "w" not in kinds else kinds.index("w")
            whole = n_words == len(words)
            part = text[start:end] if whole else " ".join(words[:n_words])
            fragment = Fragment(number, part, words[:n_words], kinds[:n_words], has_gap(part))
            fragment.recovered = whole or not self._more_columns_than(n_words)
            quality = quality_of(self._block, fragment)
            if quality or noisy or not whole or len(starts) > 1:
                self._take(fragment, quality)
                taken = True
        return taken

    def _more_columns_than(self, n_words: int) -> bool:
        """Tell whether the titles name columns behind the numbers (algorithm, protocol …)."""
        titles = self._block.titles if self._block else None
        return titles is not None and "other" in titles[n_words:]

    def _take(self, fragment: Fragment, quality: int) -> None:
        """Keep a whole row; hold a part back until the next lines show what it is."""
        self._flush()
        block = self._open(fragment.number)
        if self._tag is not None:
            block.tags.add(self._tag)
        self._mark(fragment.number, "row")
        if quality == FULL:
            block.rows.append(fragment)
        else:
            self._pending = fragment

    def _joined(self, rest: Fragment, quality_of_rest: int) -> bool:
        """Add a part to the row that was broken off before it, if both make one row."""
        first = self._pending
        found = first and joined(self._block, self._kinds, first, rest, quality_of_rest)
        if not found:
            return False
        self._mark(rest.number, "continuation")
        self._pending, quality = found
        if quality == FULL:
            self._open(found[0].number).rows.append(found[0])
            self._pending = None
        return True

    def _flush(self) -> None:
        """Decide on the part of a row that is held back: nothing more of it will come."""
        fragment, self._pending = self._pending, None
        if fragment is None:
            return
        if quality_of(self._block, fragment):
            self._open(fragment.number).rows.append(fragment)
            return
        for number in (fragment.number, *fragment.joined):
            self._skip(number, fragment.text, "a row that is cut off")

    # -- what surrounds the rows ------------------------------------------------------------

    def _open(self, number: int) -> Block:
        if self._block is None:
            self._new_block(number)
        block = self._block
        assert block is not None
        if not block.rows and block.header.command is None:
            block.header.command, self._command = self._command, Header()
        return block

    def _new_block(self, number: int, inherit: bool = False) -> Block:
        self._flush()
        old = self._block
        self._block = Block(number)
        if inherit and old:
            self._block.header = old.header.copy()
            self._block.device_lists = old.device_lists
            self._block.elided_devices = old.elided_devices
            self._block.titles = old.titles
            self._block.cpu_time = old.cpu_time
            self._block.microseconds = old.microseconds
            self._block.inherits = True
        self.blocks.append(self._block)
        return self._block

    def _header(self, number: int, bare: str) -> None:
        header = Header()
        key = read_header(header, bare)
        block = self._block
        series = key == "series"
        if key and (block is None or block.has_begun_to_measure() or self._pending):
            block = self._new_block(number, inherit=series)
        if block is None:
            return
        if key and not series:
            block.header.seen[key] += 1
            block.n_headers = max(block.n_headers, block.header.seen[key])
            if "#" not in bare and key != "rccl" and block.lost_hash is None:
                block.lost_hash = number
        block.header.update(header)

    def _devices(self, number: int, bare: str, devices: list[Device]) -> None:
        self._mark(number, "device")
        block = self._block
        if block is None or block.has_begun_to_measure() or self._pending:
            block = self._new_block(number)
        if "#" not in bare and block.lost_hash is None:
            block.lost_hash = number
        for device in devices:
            # The second rank 0 is the first of a second copy.
            copy = block.rank_counts[device.rank]
            block.rank_counts[device.rank] += 1
            if copy == len(block.device_lists):
                block.device_lists.append([])
            block.device_lists[copy].append(device)
            block.n_headers = max(block.n_headers, copy + 1)

    def _title(self, number: int, titles: tuple[str, ...], lower: str) -> None:
        self._flush()
        self._mark(number, "title")
        block = self._block
        if block is None or block.has_begun_to_measure():
            block = self._new_block(number, inherit=block is not None)
        if "#" not in lower and block.lost_hash is None and block.n_headers:
            block.lost_hash = number
        block.titles = titles
        block.cpu_time = "cputime" in lower
        self._note_unit(lower)

    def _note_unit(self, lower: str) -> None:
        if self._block:
            for unit, microseconds in (("(ms)", 1e3), ("(ns)", 1e-3), ("(s)", 1e6), ("(us)", 1.0)):
                if unit in lower:
                    self._block.microseconds = microseconds

    def _trailer(self, bare: str) -> None:
        block = self._block
        if block is None:
            return
        found = re.search(r"Avg bus bandwidth\s{0,40}:\s{0,40}(\d{1,12}(?:\.\d{1,12})?)", bare)
        if found:
            block.average_busbw = float(found[1])
            block.n_trailers += 1
        found = re.search(r"Out of bounds values\s{0,40}:\s{0,40}(\d{1,12})", bare)
        if found:
            block.out_of_bounds += int(found[1])

    def _note_noise(self, number: int, line: str) -> None:
        """Keep what noise says of the run: errors, the library, the command that started it."""
        if self.marks[number - 1] == "error":
            (self._block.errors if self._block else self.errors).append(
                (number, line.strip()[:_SHOWN])
            )
        if "_perf" in line or "ersion" in line:
            found = Header()
            read_header(found, line[:_LONGEST_ROW])
            if found.command_op:
                self._command = found
            if found.library and self._block:
                self._block.header.library = self._block.header.library or found.library

    def _mark(self, number: int, kind: str) -> None:
        self.marks[number - 1] = kind

    def _skip(self, number: int, line: str, reason: str) -> None:
        self._mark(number, "skipped")
        skipped = SkippedLine(number, line.strip()[:_SHOWN], reason)
        (self._block.skipped if self._block else self.skipped).append(skipped)
