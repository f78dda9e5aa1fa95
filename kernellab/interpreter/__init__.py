"""Runs kernels on the CPU, in a process of its own, and checks every access to memory."""
