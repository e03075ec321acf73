"""A reader's own log, from a path, from a string, or from a button.

The button is Colab's file dialog where there is one, and a widget of ipywidgets elsewhere; its
``value`` is a dict in ipywidgets 7 and a tuple in 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commlab.calibrate import Log, LogError, read_log, read_log_file


class LogUpload:
    """A button that takes one file; a cell that ends with it shows it.

    On Colab its dialog opens at once and the cell waits for it.

    Attributes
    ----------
    button : ipywidgets.FileUpload or None
        None on Colab.
    """

    def __init__(self) -> None:
        self._files: object = {}
        try:
            from google.colab import files
        except ImportError:
            import ipywidgets

            # Any name: logs end in .log, .txt, .out, .o12345 …
            self.button: Any = ipywidgets.FileUpload(multiple=False, description="log · 日志")
        else:
            self.button = None
            self._files = files.upload()

    @property
    def files(self) -> list[tuple[str, bytes]]:
        """Name and content of what was uploaded."""
        return uploaded_files(self._files if self.button is None else self.button.value)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.button is not None:
            display(self.button)


def uploaded_files(value: object) -> list[tuple[str, bytes]]:
    """Read what an upload left: of Colab, of ipywidgets 7, or of ipywidgets 8.

    Parameters
    ----------
    value : mapping or sequence
        Colab: ``{name: bytes}``; ipywidgets 7: ``{name: {"content": bytes, …}}``; ipywidgets 8:
        a tuple of ``{"name": …, "content": memoryview, …}``.

    Returns
    -------
    list of (str, bytes)
    """
    if isinstance(value, Mapping):
        return [
            (name, bytes(file["content"] if isinstance(file, Mapping) else file))
            for name, file in value.items()
        ]
    assert isinstance(value, Sequence)
    return [(file["name"], bytes(file["content"])) for file in value]


def choose_log(
    *,
    path: str | Path = "",
    pasted: str = "",
    upload: LogUpload | None = None,
    sample: str,
    op: str | None = None,
    n_ranks: int | None = None,
    n_nodes: int | None = None,
) -> tuple[str, Log]:
    """Read the log that a reader gave, or the sample if there is none.

    Parameters
    ----------
    path : str or Path
        A file; empty if there is none.
    pasted : str
        The log itself; white space counts as nothing.
    upload : LogUpload, optional
        A button that was shown.
    sample : str
        The text of a log that is read if nothing was given.
    op, n_ranks, n_nodes : optional
        What the log does not say, see `commlab.calibrate.read_log`.

    Returns
    -------
    (str, Log)
        Where it came from, and the log.

    Raises
    ------
    LogError
        ``several_logs``, ``nothing_uploaded``, and what `commlab.calibrate.read_log` raises.
    """
    given = [bool(str(path)), bool(pasted.strip()), upload is not None]
    if sum(given) > 1:
        raise LogError(
            "several_logs",
            "Give one log: a path, a pasted text, or an upload, and leave the others empty. "
            "只给一份日志：路径、粘贴的文字、上传，三选一，其余留空。",
        )
    stated: dict[str, Any] = {"op": op, "n_ranks": n_ranks, "n_nodes": n_nodes}
    if given[0]:
        return Path(path).name, read_log_file(path, **stated)
    if given[1]:
        return "pasted", read_log(pasted, **stated)
    if upload is None:
        return "sample", read_log(sample, **stated)
    files = upload.files
    if len(files) != 1:
        raise LogError(
            "nothing_uploaded" if not files else "several_logs",
            f"{len(files)} files were uploaded: choose exactly one log with the button, then run "
            f"this cell again. 上传了 {len(files)} 个文件：请用按钮选一个日志，再运行这个单元格。",
        )
    name, content = files[0]
    return name, read_log(content, **stated)
