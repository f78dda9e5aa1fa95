"""The processes behind an executor that own a GPU each, on whatever machines: who they are, and calls to them.

`cluster_of` finds them behind dask, ipyparallel or any executor. `CallQueue` hands calls to those that own a GPU of one
kind, one at a time each; what is called is told what a `Call` holds, and answers with plain data.
"""

from kernellab.tune.cluster.call_queue import Answered, CallQueue
from kernellab.tune.cluster.calls import Call, Declined
from kernellab.tune.cluster.executors import Cluster, GpuOwner, Owners, cluster_of, executor_of, owners_of

__all__ = [
    "Answered",
    "Call",
    "CallQueue",
    "Cluster",
    "Declined",
    "GpuOwner",
    "Owners",
    "cluster_of",
    "executor_of",
    "owners_of",
]
