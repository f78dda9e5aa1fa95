"""Launches on the CPU, in the interpreter worker."""
from kernellab.worker import Kind
INTERPRET_WORKER = Kind("interpret", preload=(), environment=(("TRITON_INTERPRET", "1"),))
class Interpreter:
    def __init__(self, worker, timeout_s): self.worker=worker; self.timeout_s=timeout_s
    def start(self): pass
    def close(self): pass
    def run(self, function, arguments, grid, timeout_s=None): raise NotImplementedError
