"""How a module marks and measures itself: a mark for each launch, a benchmark of each and of all, and their bytes."""

from __future__ import annotations

from kernellab.export.launcher import RECORDER

_MARK = '''\
MARKS = True  # False leaves the marks out, which cost a microsecond for each launch
MEASURED = None  # while `benchmark` runs, a list: the name, bytes and events of each launch
CHECKED = set()  # names of kernels whose launches are looked at for NaN that they make


def has_nan(tensors):
    """Tell whether one of the tensors holds NaN."""
    floats = (t.float() if t.element_size() == 1 else t for t in tensors if t.is_floating_point() or t.is_complex())
    return any(t.isnan().any().item() for t in floats)


@contextlib.contextmanager
def mark(name, read, written):
    """Mark a launch for profilers, by torch's recorder and NVTX; take its bytes and time while `benchmark` runs.

    Raises FloatingPointError where a kernel among CHECKED writes NaN, and its tensors held none before.
    """
    if name in CHECKED and not has_nan((*read, *written)):
        yield
        if has_nan(written):
            raise FloatingPointError(f"{name} made NaN of numbers")
        return
    if not MARKS and MEASURED is None:
        yield
        return
    with RECORD(name):
        if INTERPRETED or not torch.cuda.is_initialized():
            yield
            return
        torch.cuda.nvtx.range_push(name)
        if MEASURED is not None:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()
        if MEASURED is not None:
            end.record()
            MEASURED.append((name, sum(t.numel() * t.element_size() for t in (*read, *written)), start, end))'''

MARK = f"{RECORDER}\n{_MARK}"


BENCHMARK = '''\
def benchmark(arguments, rounds=20):
    """Measure the program on a GPU and print a row for each launch and for all: time, bytes, GB/s.

    The bytes of a launch are those of each tensor that it reads and of each that it writes, once.
    """
    global MEASURED
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(**arguments)
    peak_bytes = torch.cuda.max_memory_allocated() - before
    found = []
    for _ in range(rounds):
        torch.cuda._sleep(20_000_000)  # so that the launches wait for the device, and not it for them
        MEASURED = []
        run(**arguments)
        found.append(MEASURED)
    MEASURED = None
    torch.cuda.synchronize()
    rows = []
    for launches in zip(*found):
        times = [start.elapsed_time(end) for _, _, start, end in launches]
        rows.append((launches[0][0], statistics.median(times), launches[0][1]))
    all_ms, moved = (sum(row[column] for row in rows) for column in (1, 2))
    time_ms = triton.testing.do_bench(lambda: run(**arguments))
    for name, each_ms, each_bytes in [*rows, ("launches", all_ms, moved), ("program", time_ms, moved)]:
        rate = each_bytes / each_ms / 1e6 if each_ms else 0.0
        print(f"{name:<32} {each_ms * 1e3:10.1f} us {each_bytes:15,} bytes {rate:8.0f} GB/s")
    print(f"It allocated {peak_bytes:,} bytes beside its inputs.")'''


MAIN = '''\
def main():
    """Check the program; measure it where there is a GPU."""
    if not torch.cuda.is_available() and not INTERPRETED:
        sys.exit("There is no GPU: set TRITON_INTERPRET=1 to check the program on the CPU.")
ROUNDED    print("program", check())
    if INTERPRETED:
        print("There is no GPU in use: nothing is measured.")
        return
    benchmark(make_inputs())


if __name__ == "__main__":
    main()
'''
