"""Gradient buckets against the backward pass: what hides, what is exposed, which size is best.

Three pieces, each of them data: a backward pass (:func:`uniform_backward`,
:func:`transformer_backward`), bucket sizes (:func:`ddp_buckets`, :func:`equal_buckets`), and
the timeline of both (:func:`timeline`). :func:`best_bucket` searches over timelines.
"""

from commlab.overlap.buckets import (
    BUCKET_CAP,
    FIRST_BUCKET,
    ddp_buckets,
    equal_buckets,
    fill_buckets,
)
from commlab.overlap.gradients import (
    BackwardPass,
    Gradient,
    transformer_backward,
    uniform_backward,
)
from commlab.overlap.search import BestBucket, Trial, best_bucket, uniform_best_bucket
from commlab.overlap.timelines import (
    BucketInterval,
    Interval,
    OverlapTimeline,
    bucket_timeline,
    gradients_needed,
    send_in_order,
    timeline,
)

__all__ = [
    "BUCKET_CAP",
    "FIRST_BUCKET",
    "BackwardPass",
    "BestBucket",
    "BucketInterval",
    "Gradient",
    "Interval",
    "OverlapTimeline",
    "Trial",
    "best_bucket",
    "bucket_timeline",
    "ddp_buckets",
    "equal_buckets",
    "fill_buckets",
    "gradients_needed",
    "send_in_order",
    "timeline",
    "transformer_backward",
    "uniform_backward",
    "uniform_best_bucket",
]
