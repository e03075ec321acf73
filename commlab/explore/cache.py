"""Drawn frames on disk, so that the tests and the book build draw each state once.

A set of frames is stored under a digest of everything that can change it: all files of
this package, the versions of matplotlib and numpy, the draw function and its fixed
arguments, the knobs and the figure size. A function written in a notebook cell has no
stable identity and is never cached.

The files of the package are those found when this module was imported, since the code that
draws was imported then, too. If they have changed by the time of storing, or had changed
shortly before the import, nothing is stored: the pictures might be those of older code.
Not noticed is a file saved long after ``import commlab`` and long before ``import
commlab.explore``. A cache that cannot be read or written is no error; an empty COMMLAB_CACHE
folder makes a build draw all frames.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from commlab.explore.render import Frame

_PACKAGE = Path(__file__).resolve().parents[1]
# Seconds: modules of this package that were imported before this one are not older than that.
_IMPORT_TIME = 10


class _NoIdentityError(TypeError):
    """Something whose meaning cannot be written down, such as a function of a notebook."""


def frames_key(
    draw: Callable[..., Any],
    fixed: Mapping[str, Any],
    knobs: Mapping[str, list[Any]],
    figsize: tuple[float, float],
    salt: str,
) -> str | None:
    """Digest of everything that a set of frames depends on; None if it has no identity."""
    if _DIGEST is None:
        return None
    try:
        described = [_describe(part) for part in (draw, dict(fixed), dict(knobs), figsize, salt)]
    except _NoIdentityError:
        return None
    parts = [_DIGEST, mpl.__version__, np.__version__, *described]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def load(key: str, n_frames: int) -> list[Frame] | None:
    """Read stored frames; None if there are none or the file is damaged."""
    folder = _folder()
    if folder is None:
        return None
    try:
        stored = json.loads(gzip.decompress((folder / f"{key}.json.gz").read_bytes()))
        frames = [Frame(**frame) for frame in stored]
    except (OSError, EOFError, ValueError, TypeError, zlib.error):
        return None
    whole = len(frames) == n_frames and all(
        isinstance(frame.svg, str)
        and isinstance(frame.message, str)
        and isinstance(frame.data, dict)
        for frame in frames
    )
    return frames if whole else None


def store(key: str, frames: list[Frame]) -> None:
    """Write frames in one move, so that a reader never sees half a file.

    Nothing is written if the package's files have changed, or if the folder does not allow it.
    """
    folder = _folder()
    if folder is None:
        return
    raw = json.dumps([asdict(frame) for frame in frames], ensure_ascii=False).encode()
    part = folder / f"{key}.{os.getpid()}.part"
    try:
        if _package_digest() != _DIGEST:
            return
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(gzip.compress(raw, 3, mtime=0))
        part.replace(folder / f"{key}.json.gz")
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()


def _folder() -> Path | None:
    """COMMLAB_CACHE, or .cache/explore in a clone; an installed package keeps no cache."""
    chosen = os.environ.get("COMMLAB_CACHE")
    if chosen:
        return Path(chosen)
    root = _PACKAGE.parent
    return root / ".cache" / "explore" if (root / "pyproject.toml").is_file() else None


def _package_files() -> Iterator[Path]:
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _package_digest() -> str:
    digest = hashlib.sha256()
    for path in _package_files():
        digest.update(str(path.relative_to(_PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest_at_import() -> str | None:
    """The digest of the files that were imported; None if some may have changed since."""
    newest = max(path.stat().st_mtime for path in _package_files())
    return _package_digest() if newest < time.time() - _IMPORT_TIME else None


_DIGEST = _digest_at_import()


def _describe(value: Any) -> str:
    """Write a value down so that equal texts mean equal values."""
    if value is None or isinstance(value, (bool, int, float, str, Fraction)):
        return repr(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, np.ndarray) and value.dtype != object:
        bits = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array({value.dtype},{value.shape},{bits})"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({','.join(map(_describe, value))})"
    if isinstance(value, Mapping):
        items = (f"{_describe(key)}:{_describe(item)}" for key, item in value.items())
        return "{" + ",".join(items) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        items = (f"{field.name}={_describe(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__qualname__}({','.join(items)})"
    if isinstance(value, functools.partial):
        parts = (value.func, list(value.args), value.keywords)
        return f"partial({','.join(map(_describe, parts))})"
    name = getattr(value, "__qualname__", "")
    module = getattr(value, "__module__", "") or ""
    if name and "<" not in name and module.split(".")[0] == "commlab":
        return f"{module}.{name}"
    raise _NoIdentityError(f"{type(value).__name__} has no stable identity.")
