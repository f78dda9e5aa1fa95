"""A program as a Python module that needs torch and Triton, and nothing of the lab.

It marks each launch for profilers, checks itself, and measures each launch and all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernellab.capture.callees import WrittenTuners, user_operators
from kernellab.capture.naming import RESERVED_NAMES
from kernellab.capture.node_functions import layout_copy, read_problem, shape_problem, table_with_addresses, window
from kernellab.capture.plan import MemoryPlan
from kernellab.capture.program_sizes import requirements
from kernellab.capture.statements import LaunchCall, main_device, statements, takes_descriptors, uses_of
from kernellab.capture.tape import Tape, sharing_problem
from kernellab.capture.tracked_tensors import contents_of
from kernellab.errors import KernellabError, UsageError, plural
from kernellab.export.checking import (
    OutputSummary,
    arguments_text,
    comparison_lines,
    expected_text,
    main_text,
    summarize_outputs,
    tolerance_over,
    usage_lines,
    why_uninterpreted,
)
from kernellab.export.flatten import (
    FlatModule,
    append_closures,
    decorator_of,
    flatten_closure,
    function_text,
    remap_functions,
)
from kernellab.export.launcher import RECORDER, refusal_lines
from kernellab.export.module import IS_INTERPRETED, module_source
from kernellab.export.write import Exported, replace_file
from kernellab.source import Closure, literal

_CONSTANT_AT_MOST = 4096

Trial = Callable[[], Mapping[str, Any]]
"""Runs a program on generated inputs; returns its outputs by name."""


def write(tape: Tape, plan: MemoryPlan, trial: Trial, path: Path, name: str) -> Exported:
    """Write a program as a module; return the file.

    Raises:
        UsageError: something in it cannot be written down, or the file cannot be written.
    """
    text = module_text(tape, plan, trial, name)
    replace_file(path, text.encode())
    return Exported(path, name, "program", tape.notes)


def module_text(tape: Tape, plan: MemoryPlan, trial: Trial, name: str) -> str:
    """Return the source of the module of a program."""
    uses = uses_of(tape)
    with_decorators = [use.closure if use.tuning is None else use.tuning.closure for use in uses]
    operators_by_name = user_operators(tape.steps, main_device(tape).partition(":")[0])
    operator_closures = [closure for closure, _ in operators_by_name.values()]
    closure, all_maps = append_closures(
        Closure(()), [*(use.closure for use in uses), *with_decorators, *operator_closures]
    )
    count = len(uses)
    index_maps, tuner_maps, operator_maps = all_maps[:count], all_maps[count : 2 * count], all_maps[2 * count :]
    reserved = RESERVED_NAMES | {value.name for value in tape.values}
    flat = flatten_closure(closure, reserved)
    tuners = WrittenTuners(flat, reserved | set(flat.names.values()))
    calls = {}
    for step, index_map, tuner_map in zip(tape.launches, index_maps, tuner_maps, strict=True):
        use, kernel = step.use, flat.names[index_map[0]]
        assert use is not None
        constants = {n: flat.expression(remap_functions(binding, index_map)) for n, binding in use.constants}
        constants |= {n: literal(value) for n, value in use.options}
        tuned = tuners.call(step, kernel, index_map, tuner_map)
        calls[id(use)] = tuned or LaunchCall(kernel, use.parameters, constants)
    options = {index_map[0]: use.jit_options for use, index_map in zip(uses, index_maps, strict=True)}
    pairs = zip(operators_by_name.items(), operator_maps, strict=True)
    operators = {
        name: flat.expression(remap_functions(binding, index_map)) for (name, (_, binding)), index_map in pairs
    }
    operands = {index for step in tape.launches for index in step.operands}
    refusal = why_uninterpreted(flat, {tape.values[index].layout.dtype for index in operands})
    run = _run(tape, plan, refusal, list(statements(tape, plan, calls, operators)))
    sections = [
        "\n\n".join([IS_INTERPRETED, *([_UNWRAPPED] if "wrap_triton" in flat.imports else [])]),
        *([first_constants] if (first_constants := flat.first_constants()) else []),
        *flat.functions(lambda index: decorator_of(flat.closure.functions[index], options.get(index, ()))),
        *tuners.definitions(),
        *_functions(run),
        *requirements(tape),
    ]
    sections += [
        *([_PLACED] if len(tape.gpus) > 1 else []),
        MARK,
        *([_ROOM.replace("SIZE", str(plan.workspace_bytes), 1)] if plan.workspace_bytes else []),
        run,
        *_inputs(tape),
        BENCHMARK,
        *_check(tape, trial, refusal),
    ]
    return module_source(_provenance(tape, plan, name, refusal), _imports(flat, tape, run), sections)


def _imports(flat: FlatModule, tape: Tape, run: str) -> Iterator[str]:
    """Yield the imports; some depend on the text of ``run``."""
    yield from (f"import {name}" for name in ("contextlib", "os", "statistics", "sys"))
    needed = {"hashlib": "read_problem(", "math": "math."}
    yield from (f"import {name}" for name, call in needed.items() if call in run)
    yield ""
    yield from flat.import_lines()
    if takes_descriptors(tape):
        yield "from triton.tools.tensor_descriptor import TensorDescriptor"


_OWN = (table_with_addresses, layout_copy, read_problem, shape_problem, contents_of, window, sharing_problem)


def _functions(text: str) -> Iterator[str]:
    """Yield the functions of the lab that a text calls, with those that they call, which stand behind in `_OWN`."""
    texts: list[str] = []
    for function in _OWN:
        if f"{function.__name__}(" in text:
            texts.append(function_text(function))
            text += texts[-1]
    yield from ([_REFUSE] if "refuse(" in text else [])
    yield from reversed(texts)


_UNWRAPPED = """\
if INTERPRETED:
    wrap_triton = lambda kernel: kernel  # noqa: E731 - torch takes compiled kernels only"""

_PLACED = '''\
def placed(name):
    """Return a GPU of the recording; Triton's interpreter has all on the CPU."""
    return torch.device("cpu" if INTERPRETED else name)'''


_ROOM = '''\
WORKSPACE_BYTES = SIZE  # what `run` needs of a workspace; without one it allocates


def room(workspace, offset, count, dtype, device):
    """Return memory for a buffer: a part of the caller's workspace, or new."""
    if workspace is None:
        return torch.empty(count, dtype=dtype, device=device)
    return workspace[offset : offset + count * dtype.itemsize].view(dtype)


def require_workspace(workspace, device):
    """Raise ValueError for a workspace that is not a piece of memory of that size on the device."""
    if not isinstance(workspace, torch.Tensor):
        raise ValueError(f"The workspace is a {type(workspace).__name__}; expected a tensor: "
                         f"torch.empty({WORKSPACE_BYTES}, dtype=torch.uint8, device={str(device)!r}).")
    found = (workspace.dtype, workspace.dim(), workspace.is_contiguous(), workspace.device)
    wanted = (torch.uint8, 1, True, device)
    if found != wanted or workspace.numel() < WORKSPACE_BYTES or workspace.data_ptr() % 16:
        raise ValueError(f"The workspace is {found} of {workspace.numel():,} bytes; expected {wanted}, "
                         f"{WORKSPACE_BYTES:,} bytes at least, from a multiple of 16 on: torch.empty gives that.")'''


_REFUSE = '''\
def refuse(problem):
    """Raise ValueError for what a run finds and the program does not hold for; "" is not a problem."""
    if problem:
        raise ValueError(problem)'''


def _run(tape: Tape, plan: MemoryPlan, refusal: str, body: list[str]) -> str:
    names, changed = tape.names(tape.inputs), tape.names(tape.mutated_inputs)
    parameters = ", ".join(names)
    doc = f"Run the program; return {', '.join(tape.output_names) or 'nothing'} by name."
    doc += f" It changes {', '.join(changed)}." if changed else ""
    overwritten = [name for name in plan.overwritten if name in names]
    lost = [name for name in overwritten if name not in changed]
    doc += f" What {', '.join(lost)} hold is lost." if lost else ""
    if plan.workspace_bytes:
        parameters = ", ".join([*names, "*", "workspace=None"])
        doc += " A workspace is a torch.uint8 tensor of WORKSPACE_BYTES, for what lives during the run alone."
    head = ["@torch.no_grad()", f"def run({parameters}):", f'    """{doc}"""']
    head += [f"    {line}" for line in refusal_lines(refusal)]
    lines = [f"require({', '.join(f'{name}={name}' for name in names)})"] if names else []
    apart = list(dict.fromkeys([*tape.names(tape.apart), *overwritten]))
    if apart:  # they are copied or overwritten, so that no other input may share elements with them
        own = ", ".join(f"{literal(name)}: {name}" for name in names)
        lines.append(f"refuse(sharing_problem({{{own}}}, {apart}))")
    if any("device" in line for line in body) or tape.constants:
        lines.append(f"device = {_device_expression(tape)}")
    if plan.workspace_bytes:
        lines += ["if workspace is not None:", "    require_workspace(workspace, device)"]
    lines += [f"{tape.values[i].name} = {_constant(tensor)}" for i, tensor in tape.constants]
    lines += body
    pairs = zip(tape.output_names, tape.names(tape.outputs), strict=True)
    lines.append(f"return {{{', '.join(f'{literal(name)}: {value}' for name, value in pairs)}}}")
    head.append("    with torch._C._DisableAutocast():  # what it casts in the recording are operations of their own")
    return "\n".join([*head, *(f"        {line}" for line in lines)])


def _device_expression(tape: Tape) -> str:
    main, layouts = main_device(tape), tape.input_layouts
    return next((f"{name}.device" for name, layout in layouts.items() if layout.device == main), _DEVICE)


_DEVICE = 'torch.device("cpu" if INTERPRETED else "cuda")'


def _constant(tensor: Any) -> str:
    if tensor.numel() > _CONSTANT_AT_MOST:
        raise UsageError(
            f"The block makes a tensor of {tensor.numel():,} elements from Python data, and a module can hold "
            f"{_CONSTANT_AT_MOST:,}; make it before the block, so that it is an input."
        )
    dtype = str(tensor.dtype)
    return f"torch.tensor({literal(tensor.cpu().tolist())}, dtype={dtype}, device=device)"


def _inputs(tape: Tape) -> Iterator[str]:
    first = f"device = {_DEVICE} if device is None else device"
    main, layouts = main_device(tape), tape.input_layouts
    others = {n: f'placed("{layout.device}")' for n, layout in layouts.items() if layout.device != main}
    devices = others if len(tape.gpus) > 1 else {}
    yield arguments_text(tape.samples, "make_inputs(device=None, seed=0)", first, devices=devices)


def _check(tape: Tape, trial: Trial, refusal: str) -> Iterator[str]:
    """Yield the expected outputs, ``check`` and ``main``."""
    try:
        expected = () if any(step.is_random for step in tape.steps) else summarize_outputs(trial())
    except KernellabError as exc:  # such as data of another shape than the recorded data
        yield _UNCHECKED.replace("REASON", literal(f"not run, since it refuses generated inputs: {exc.message}"))
        return
    if expected:
        yield from expected_text(expected)
    yield _check_text(tape, expected)
    yield main_text("program", refusal, ['print("program", check())'], ["benchmark(make_inputs())"])


_UNCHECKED = '''\
def check(device=None):
    """Return why the program cannot be checked on generated inputs; `run` takes those that it holds for."""
    return REASON


if __name__ == "__main__":
    print("program", check())'''


def _check_text(tape: Tape, expected: tuple[OutputSummary, ...]) -> str:
    lines = [
        "def check(device=None):",
        '    """Run once on generated inputs; raise AssertionError if an output is wrong."""',
        "    outputs = run(**make_inputs(device))",
    ]
    if not expected:
        return "\n".join([*lines, '    return "runs; no expected outputs are recorded"'])
    has_dot = any("tl.dot" in function.text for use in uses_of(tape) for function in use.closure.functions)
    tolerance = tolerance_over((value.layout.dtype for value in tape.values), has_dot=has_dot)
    return "\n".join([*lines, *comparison_lines(tolerance, _rounded_outputs(tape))])


def _rounded_outputs(tape: Tape) -> list[str]:
    """Return the outputs of whole numbers that follow from floats."""
    floats = {value.storage for value in tape.values if value.layout.dtype.startswith(("float", "bfloat", "complex"))}
    following = set(floats)
    for step in tape.steps:
        operands = {tape.values[index].storage for index in step.operands}
        if operands & following:
            following |= {tape.values[i].storage for i in (*step.results, *step.mutated) if i >= 0}
    pairs = zip(tape.output_names, (tape.values[index].storage for index in tape.outputs), strict=True)
    return [name for name, storage in pairs if storage in following - floats]


def _provenance(tape: Tape, plan: MemoryPlan, name: str, refusal: str) -> list[str]:
    date = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    kernels = ", ".join(dict.fromkeys(use.kernel for use in uses_of(tape)))
    others = len(tape.steps) - len(tape.launches)
    lines = [
        f"The program `{name}`: {plural(len(tape.launches), 'launch')} and {plural(others, 'operation')} of torch.",
        "",
        f"Exported by kernellab on {date}; its kernels are {kernels or 'none'}.",
    ]
    lines.append(
        f"Its buffers take at most {plan.peak_bytes:,} bytes at a time, and {plan.unplanned_bytes:,} if all were kept "
        "until the end. Inputs and what torch needs inside of an operation are not counted."
    )
    if tape.sizes is not None:
        lines.append(
            "It takes inputs of other sizes, too, where what `require` asks holds; figures are for the recorded ones."
        )
    lines += [f"Note: {note}." for note in tape.notes]
    return [*lines, *usage_lines("program", "measures", refusal)]


_MARK = '''\
MARKS = True  # False leaves the marks out, which cost a microsecond for each launch
MEASURED = None  # while `benchmark` runs, a list: the name, bytes and events of each launch
CHECKED = set()  # names of kernels whose launches are looked at for NaN that they make


def has_nan(tensors):
    """Return whether one of the tensors holds NaN."""
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
    print(f"It allocated {peak_bytes:,} bytes in addition to its inputs.")'''
