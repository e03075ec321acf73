"""``python -m commlab.real.cluster``: run all experiments and print them, two minutes.

``--output FILE`` also stores them as JSON; ``commlab/real/data/virtual_cluster.json`` was made
like that, and says where and when.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from commlab.real.cluster.experiments import measure_all
from commlab.real.cluster.launch import ClusterError
from commlab.real.cluster.namespaces import ClusterUnavailable
from commlab.real.cluster.results import to_plain
from commlab.real.launch import RankError


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description="Measure schedules on a virtual cluster.")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each schedule")
    parser.add_argument("--output", type=Path, help="also store the measurement as JSON")
    options = parser.parse_args()
    try:
        measured = measure_all(options.repeats, show=partial(print, file=sys.stderr))
    except (ClusterUnavailable, ClusterError, RankError) as error:
        raise SystemExit(str(error)) from None
    print(measured)
    if options.output:
        text = json.dumps(to_plain(measured), indent=1, ensure_ascii=False)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
