"""Cheats in what a candidate's process hands over: messages of its own, and programs that it changes."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: E501

from __future__ import annotations

from tests.judge.cheats.cheat import HEAD, REFUSED, WRONG, WRONG_OR_REFUSED, Cheat, changed, cheat
from tests.judge.cheats.right import SOFTMAX

_FRAMES = """
import json, os, sys


def of_the_judge(name):
    frame = sys._getframe()
    while frame is not None:
        if name in frame.f_locals or name in frame.f_globals:
            return frame.f_locals.get(name, frame.f_globals.get(name)), frame.f_globals
        frame = frame.f_back


"""
_SEND = f"""{_FRAMES}
def answer(**fields):
    send, _ = of_the_judge("send")
    send(json.dumps({{"schema": 1, "cases": [], "kernels": []}} | fields).encode())
    os._exit(0)

"""
_FORGE = f"""{_FRAMES}
_, judge = of_the_judge("encoded_program")
right = judge["encoded_program"]


def forged(*arguments):
    program = right(*arguments)
    change(program, program["steps"], program["values"])
    return program


judge["encoded_program"] = forged

"""


def _message(name: str, fields: str, rules: str = "malformed") -> Cheat:
    """Return a candidate that sends a message of its own."""
    return cheat(name, "softmax", "message forged", REFUSED, rules, f"{_SEND}answer({fields})\n")


def forged(
    name: str,
    change: str,
    verdicts: frozenset[str] = REFUSED,
    rules: str = "malformed",
    candidate: str = SOFTMAX,
    specification: str = "softmax",
) -> Cheat:
    """Return a candidate that changes its program before it is sent."""
    text = f"{_FORGE}\ndef change(program, steps, values):\n    {change}\n"
    whole = changed(candidate, (HEAD, f"{HEAD}\n{text}\n"))
    return cheat(name, specification, "program forged", verdicts, rules, whole)


_MESSAGES = (
    _message("no_json", "x=1) if False else (of_the_judge('send')[0](b'\\x80\\x04.'), os._exit(0)", "malformed"),
    _message(
        "a_pickle",
        "x=1) if False else (of_the_judge('send')[0](__import__('pickle').dumps(print)), os._exit(0)",
        "malformed",
    ),
    _message("deep_nesting", "x=1) if False else (of_the_judge('send')[0](b'[' * 10**6), os._exit(0)", "malformed"),
    _message("a_message_of_the_size_of_memory", "x='y' * (1 << 28)", "malformed no_program import_fails"),
    _message(
        "a_number_of_a_million_digits",
        "x=1) if False else (of_the_judge('send')[0](b'{\"cases\": 1' + b'0' * 10**6 + b'}'), os._exit(0)",
        "malformed",
    ),
    _message(
        "the_fields_of_a_verdict", "verdict='accepted', decision='accepted', is_accepted=True, reasons=[], trials=[]"
    ),
    _message("no_programs", "cases=[]"),
    _message("programs_of_another_kind", "cases=[None] * 5"),
    _message("programs_that_are_empty", "cases=[{'programs': [{}, {}]}] * 5"),
    _message("three_programs", "cases=[{'programs': [{}, {}, {}]}] * 5"),
    _message("cases_as_an_object", "cases={'0': 1}"),
    _message("an_error_of_another_type", "error=[1]"),
    _message("an_error_whose_line_is_a_text", "error={'message': 'm', 'line': 'x' * 9}", "malformed import_fails"),
    _message("kernels_that_are_none", "cases=[{'error': {'message': 'm', 'line': 1}}] * 5, kernels=[{'functions': 3}]"),
    _message(
        "a_program_without_steps_that_returns_its_input",
        (
            "cases=[{'programs': [{'values': [[0, 'float32', [16, 128], [128, 1], 0]], 'inputs': [['x', 0]], 'outputs': [0], 'constants': [], 'steps': [], 'output_names': ['output']}] * 2}] * 5"
        ),
        "no_kernel malformed",
    ),
)

_PROGRAMS = (
    forged(
        "an_operation_of_torch_in_the_program",
        "steps[:] = [{'operation': 'aten._softmax.default', 'args': [{'ref': 0}, 1, False], 'kwargs': [], 'results': program['outputs'], 'several': False, 'line': 1}]",
        rules="torch_operation",
    ),
    forged(
        "an_operation_of_torch_behind_the_kernel",
        "steps.append({'operation': 'aten._softmax.out', 'args': [{'ref': program['inputs'][0][1]}, 1, False], 'kwargs': [['out', {'ref': program['outputs'][0]}]], 'results': [-1], 'several': False, 'line': 1})",
        rules="torch_operation",
    ),
    forged(
        "an_address_far_from_its_tensor",
        "steps[-1]['kwargs'][0][1] = {'addresses': [None, [[0, program['outputs'][0], 1 << 40]]]}",
        frozenset({"wrong", "unsafe"}),
        "launch_fails out_of_bounds values",
    ),
    forged(
        "an_address_written_over_an_input",
        "steps[-1]['kwargs'] = [[name, {'addresses': [value['ref'], [[0, program['outputs'][0], 0]]]} if value == {'ref': program['inputs'][0][1]} else value] for name, value in steps[-1]['kwargs']]",
        WRONG,
        "values",
    ),
    forged(
        "an_address_of_what_no_step_made",
        "steps[-1]['kwargs'][0][1] = {'addresses': [None, [[0, 99999, 0]]]}",
    ),
    forged(
        "an_address_at_the_end_of_memory",
        "steps[-1]['kwargs'][0][1] = {'addresses': [program['inputs'][0][1], [[1 << 40, program['outputs'][0], 0]]]}",
        rules="program",
    ),
    forged(
        "an_operation_of_another_library", "steps[0]['operation'] = 'prims.empty.default'", rules="unknown_operation"
    ),
    forged("an_operation_of_python", "steps[0]['operation'] = 'os.system.default'", rules="unknown_operation"),
    forged(
        "an_operation_with_a_private_name",
        "steps[0]['operation'] = 'aten.__class__.__init__'",
        rules="unknown_operation malformed",
    ),
    forged(
        "an_operation_that_reads_files",
        "steps[0] |= {'operation': 'aten.from_file.default', 'args': ['/etc/passwd'], 'kwargs': []}",
        rules="unknown_operation",
    ),
    forged(
        "memory_of_another_size",
        "steps[0]['args'] = [{'list': [1]}] if 'like' not in steps[0]['operation'] else [{'ref': 99}]",
    ),
    forged(
        "a_view_beyond_its_memory",
        "steps.append({'operation': 'window', 'args': [{'ref': program['outputs'][0]}, {'tuple': [16, 128]}, {'tuple': [128, 1]}, 1 << 40, None], 'kwargs': [], 'results': [program['outputs'][0]], 'several': False, 'line': 1})",
        WRONG_OR_REFUSED,
        "program malformed",
    ),
    forged(
        "a_view_by_as_strided_beyond_its_memory",
        "steps.append({'operation': 'aten.as_strided.default', 'args': [{'ref': program['outputs'][0]}, {'list': [1 << 20]}, {'list': [1 << 20]}, 1 << 40], 'kwargs': [], 'results': [-1], 'several': False, 'line': 1})",
        WRONG_OR_REFUSED,
        "program malformed",
    ),
    forged("strides_below_zero", "values[-1][3] = [-1 for _ in values[-1][3]]"),
    forged("a_shape_beyond_all_memory", "values[-1][2] = [10**15 for _ in values[-1][2]]"),
    forged("an_offset_beyond_all_memory", "values[-1][4] = 10**30"),
    forged("an_unknown_dtype", "values[-1][1] = '__class__'"),
    forged("a_number_in_place_of_a_dtype", "values[-1][1] = 7"),
    forged("a_list_in_place_of_a_dtype", "values[-1][1] = []"),
    forged("an_input_named_as_an_output", "program['inputs'][0][0] = 'output'", rules="unknown_input"),
    forged(
        "an_input_named_as_what_is_expected",
        "program['inputs'].append(['expected', len(values) - 1])",
        rules="unknown_input",
    ),
    forged(
        "an_input_that_is_an_output_of_the_program",
        "program['outputs'] = [program['inputs'][0][1]]",
        WRONG,
        "aliased_output",
    ),
    forged("more_outputs_than_there_are", "program['outputs'] *= 3", WRONG_OR_REFUSED, "outputs malformed"),
    forged("no_outputs", "program['outputs'] = []", WRONG_OR_REFUSED, "outputs malformed"),
    forged("an_output_that_nothing_makes", "values.append(values[-1])\n    program['outputs'] = [len(values) - 1]"),
    forged("a_reference_below_zero", "program['outputs'] = [-1]"),
    forged("nan_as_a_number", "steps[0]['line'] = float('nan')"),
    forged("a_truth_as_a_number", "program['outputs'] = [True]"),
    forged("values_by_the_million", "values.extend([values[0]] * 200_000)", rules="malformed no_program"),
    forged("steps_by_the_million", "steps.extend([steps[0]] * 30_000)"),
    forged("an_argument_nested_deeply", "steps[0]['args'] = [eval('[' * 60 + ']' * 60)]"),
    forged(
        "an_argument_nested_deeply_in_lists",
        "steps[0]['args'] = [{'list': [{'list': [{'list': [{'list': [1]}]}]}]}]\n    for _ in range(60):\n        steps[0]['args'] = [{'list': steps[0]['args']}]",
    ),
    forged("an_unknown_kind_of_argument", "steps[0]['args'] = [{'pickle': 'gASVAAAAAA=='}]"),
    forged("a_float_that_is_none", "steps[0]['args'] = [{'float': 'x'}]"),
    forged("a_device_of_another_kind", "steps[0]['kwargs'] = [['device', {'torch': ['device', 'meta']}]]"),
    forged(
        "a_constant_in_place_of_a_result",
        "import base64\n    program['steps'] = []\n    program['constants'] = [[program['outputs'][0], base64.b64encode(bytes(4 * values[program['outputs'][0]][2][0] * values[program['outputs'][0]][2][1])).decode()]]",
        WRONG_OR_REFUSED,
        "no_kernel values malformed",
    ),
    forged(
        "a_constant_beside_a_kernel",
        "import base64\n    values.append([99, 'float32', values[0][2], [values[0][2][1], 1], 0])\n    program['outputs'] = [len(values) - 1]\n    program['constants'] = [[len(values) - 1, base64.b64encode(bytes(4 * values[0][2][0] * values[0][2][1])).decode()]]",
        WRONG_OR_REFUSED,
        "values malformed",
    ),
    forged("a_grid_below_zero", "steps[-1]['variants'][0]['grid'] = [-1, 1, 1]"),
    forged("a_grid_of_texts", "steps[-1]['variants'][0]['grid'] = ['1', 1, 1]"),
    forged(
        "an_option_of_the_compiler", "steps[-1]['variants'][0]['options'].append(['extern_libs', '/tmp/library.so'])"
    ),
    forged("no_variants", "steps[-1]['variants'] = []"),
    forged("a_kernel_that_is_not_there", "steps[-1]['kernel'] = 7"),
    forged(
        "a_launch_without_an_argument",
        "steps[-1]['kwargs'] = steps[-1]['kwargs'][1:]",
        WRONG_OR_REFUSED,
        "launch_fails program malformed",
    ),
    forged(
        "a_launch_of_an_unnamed_argument",
        "steps[-1]['kwargs'].append(['__builtins__', 1])",
        WRONG_OR_REFUSED,
        "launch_fails program malformed",
    ),
    forged(
        "other_variants_that_do_nothing",
        "steps[-1]['variants'].insert(0, steps[-1]['variants'][0] | {'grid': [0, 1, 1]})",
        WRONG,
        "values memory_left_over",
    ),
    forged(
        "a_read_of_the_host_that_is_hidden",
        "steps.insert(0, {'operation': 'read', 'args': [{'ref': 0}, 1], 'kwargs': [], 'results': [], 'several': False, 'line': 7})",
        rules="host_reads_data malformed",
    ),
    forged(
        "a_kernel_with_host_code",
        "forge_kernels()",
        rules="host_code unsupported unknown_name outside_library malformed",
        candidate=changed(
            SOFTMAX,
            (
                HEAD,
                f"{HEAD}\n\ndef forge_kernels():\n    _, judge = of_the_judge('closure_to_jsonable')\n    right = judge['closure_to_jsonable']\n    judge['closure_to_jsonable'] = lambda c: json.loads(json.dumps(right(c)).replace('row = tl.program_id(0)', 'row = __import__(0)'))\n",
            ),
        ),
    ),
    forged(
        "a_kernel_with_another_name_inside",
        "forge_kernels()",
        rules="host_code unsupported unknown_name outside_library malformed",
        candidate=changed(
            SOFTMAX,
            (
                HEAD,
                f"{HEAD}\n\ndef forge_kernels():\n    _, judge = of_the_judge('closure_to_jsonable')\n    right = judge['closure_to_jsonable']\n    judge['closure_to_jsonable'] = lambda c: json.loads(json.dumps(right(c)).replace('triton.language', 'os'))\n",
            ),
        ),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_MESSAGES, *_PROGRAMS)
