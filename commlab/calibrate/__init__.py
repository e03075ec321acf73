"""From measured times to α and β: read logs, fit, and say in words what is odd."""

from commlab.calibrate.read import read_log, read_log_file
from commlab.calibrate.records import Log, LogError, Remark, Row, Run, SkippedLine

__all__ = [
    "Log",
    "LogError",
    "Remark",
    "Row",
    "Run",
    "SkippedLine",
    "read_log",
    "read_log_file",
]
