"""Which Triton kernels a running program launches, with which arguments, how often, and their share of the time."""
