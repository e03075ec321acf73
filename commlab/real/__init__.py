"""Real processes: everything of this package that runs on ``torch.distributed``.

``run`` starts the ranks and brings their results back. It does not import torch itself:
only the processes it starts do, and ``commlab.real.workers``, where the work is written.
"""

from commlab.real.launch import RankError, run

__all__ = ["RankError", "run"]
