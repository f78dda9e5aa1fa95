"""The schema of ``--json``: every field of every answer, with its type and meaning; the site's page is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.export import EXPORT_KINDS
from kernellab.registry.listing import VersionStatus
from kernellab.store.columns import BITS_COLUMNS, OUTCOME_COLUMNS, PREDICTED_COLUMNS


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of a JSON object; ``type`` as JSON names it, with ``or null`` where it may be missing."""

    name: str
    type: str
    meaning: str


def _fields(*rows: tuple[str, str, str]) -> tuple[JsonField, ...]:
    return tuple(JsonField(*row) for row in rows)


HEAD = _fields(
    ("schema", "integer", "1; it is raised when a field is renamed, removed, or means something else"),
    ("kernellab", "string", "the version of kernellab"),
    ("command", "string or null", "the command; null where the call names none"),
)
_OF_FILE = _fields(
    ("kernel", "string", "the name of the kernel"),
    ("file", "string", "the file, as it was given"),
    ("target", "string", "what it was compiled for: `cuda:90`"),
)
_MEASURED = _fields(
    ("seconds", "number", "the wall time of all of it"),
    (
        "provenance",
        "object",
        (
            "`device`, `driver`, `target`, `triton` and `torch` that the numbers come from, each a string or null; "
            "`predicted_for` is the GPU that times are predicted for, null where they are measured"
        ),
    ),
    ("notes", "array of strings", "remarks"),
)
EFFECTS = _fields(
    ("arguments", "array of strings", "all arguments that name memory, touched or not; `outs[1]` for a member"),
    ("reads", "array of strings", "arguments that a load may read"),
    ("writes", "array of strings", "arguments that a store may write"),
    ("atomics", "array of strings", "arguments that an atomic operation may change"),
    ("mutated", "array of strings", "those written or changed atomically"),
    ("aliases", "array of arrays of strings", "groups of arguments that are the same tensor"),
    (
        "sites",
        "array of objects",
        (
            "one operation on one argument: `argument`, `kind` (`read`, `write`, `atomic`), `operation`, `file`, "
            "`line`, `masked`, `conditional`"
        ),
    ),
    (
        "unknown",
        "array of objects",
        (
            "what is unknown: `kind`, `operation`, `file`, `line`, `reason`, `arguments`; empty where the "
            "answer is complete"
        ),
    ),
)
ERROR = _fields(
    ("type", "string", "the class: `CompileError`, `LaunchError`, `OutOfBounds`, ..., or `Interrupted`"),
    ("message", "string", "what failed, on which value, and what was expected"),
    ("kernel", "string or null", "the kernel, where known"),
    (
        "place",
        "object or null",
        "the line responsible: `file`, `line` (from 1), `column` (from 0, or null), `text` (or null)",
    ),
    ("advice", "string", "what to do about it"),
    ("detail", "string or null", "the whole message of the compiler, or where the user's Python failed"),
)

ANSWERS: Mapping[str, tuple[JsonField, ...]] = {
    "compile": (
        *_OF_FILE,
        *_fields(
            ("parameters", "array of objects", "each parameter: `name`, `type`, `specialization`"),
            ("options", "object", "the options of the backend"),
            (
                "resources",
                "object",
                (
                    "`registers`, `spill_bytes`, `stack_bytes`, `shared_bytes`, `static_shared_bytes`, `threads`, "
                    "`occupancy` (0 to 1), `limiter`, `fits`, `why_not`, `accumulation_registers`, `scalar_registers`, "
                    "`scalar_spills` (AMD), `tensor_memory_columns` (Blackwell); null where unknown"
                ),
            ),
            ("effects", "object", "as `effects` answers"),
            ("stages", "array of strings", "the stages there are, which `--stage` prints"),
            ("seconds", "number", "of the compile, or of the earlier one"),
            ("stage_seconds", "object", "seconds by stage"),
            ("from_cache", "boolean", "whether it was compiled earlier"),
            ("digest", "string", "the hash that names the result"),
        ),
    ),
    "effects": (*_OF_FILE, *EFFECTS),
    "run": (
        *_OF_FILE,
        *_fields(
            ("grid", "array of 3 integers", "how many programs ran along each axis"),
            ("seconds", "number", "of the launch alone"),
            ("where", "string", "`gpu`, `interpreter`, or `nowhere` for an empty grid"),
            ("changed", "object", "how many elements changed, by argument"),
            (
                "findings",
                "array of objects",
                (
                    "what was suspicious: `kind`, `severity` (`warning`, `note`), `argument`, `file`, `line`, "
                    "`program`, `detail`"
                ),
            ),
            ("output", "string", "what the kernel printed"),
            ("notes", "array of strings", "remarks on how it was run"),
            (
                "equals",
                "string or null",
                "the reference that the outputs equal; null where nothing was compared. One that differs is an error",
            ),
        ),
    ),
    "traffic": (
        *_OF_FILE,
        *_fields(
            ("grid", "array of 3 integers", "how many programs there are along each axis"),
            ("rows", "array of objects", "a row per access, with the columns of `Traffic.frame`"),
            ("arguments", "array of objects", "a row per argument, with the columns of `Traffic.argument_frame`"),
            ("unknown", "array of objects", "accesses whose counts are unknown: `line` (or null) and `reason`"),
            ("share", "number", "the part of the programs that was looked at; counts are scaled to all"),
            ("wave_programs", "integer", "how many programs run at a time"),
            ("notes", "array of strings", "what else a reader of the figures should know"),
        ),
    ),
    "explain": (
        *_OF_FILE,
        *_fields(
            ("bound", "string", "what limits the launch"),
            ("summary", "string", "the answer in a sentence"),
            ("share", "number or null", "share of the limiting unit's peak; null without a measured time"),
            (
                "findings",
                "array of objects",
                (
                    "what to change, the largest gain first: `cause`, `line` (or null), `text`, `evidence` (figures by "
                    "name), `gain` (the least and the largest estimated speedup)"
                ),
            ),
            ("unknown", "array of strings", "what could not be known"),
            ("from_cache", "boolean", "whether it was explained earlier, and the answer was kept"),
        ),
    ),
    "predict": (
        *_OF_FILE,
        *_fields(
            ("device", "string", "the GPU that the time is predicted for"),
            ("time_ms", "number", "the predicted time"),
            ("low_ms", "number", "the lower bound; four of five recorded times lie between the bounds"),
            ("high_ms", "number", "the upper bound"),
            ("bound", "string", "what limits the launch"),
            ("share", "number", "the roofline bound over the predicted time, 0 to 1"),
            ("unknown", "array of strings", "what was assumed"),
            ("terms", "object", "milliseconds of each unit if it worked alone, by name"),
        ),
    ),
    "tune": (
        *_OF_FILE,
        *_fields(
            (
                "best",
                "object or null",
                "parameters and options of the winner; without a GPU, by predicted time",
            ),
            ("winner", "integer or null", "its index in `rows`"),
            ("tied", "array of integers", "the rows that tie with it"),
            ("rows", "array of objects", "a row per config, with the columns of `Tuning.frame`"),
            ("from_cache", "boolean", "whether every outcome was known before"),
        ),
        *_MEASURED,
    ),
    "bench": (
        *_OF_FILE,
        *_fields(
            ("swept", "array of strings", "the columns that were swept"),
            ("implementations", "array of strings", "what was measured, the kernel first"),
            ("reference", "string", 'what `speedup` relates to, `""` for none'),
            ("rows", "array of objects", "a row per point and implementation, with the columns of `Benchmark.frame`"),
            ("ceilings", "object or null", "what the device does at best; null without a GPU"),
        ),
        *_MEASURED,
    ),
    "judge": _fields(
        ("verdict", "string", "`accepted`, `wrong`, `refused`, `unsafe` or `slow`"),
        (
            "reasons",
            "array of objects",
            (
                "what speaks against the candidate: `rule`, `detail`, `file`, `line`, `trial`; of a wrong element "
                "`output`, `index`, `got`, `expected`, `bound`; null where not known"
            ),
        ),
        (
            "trials",
            "array of objects",
            (
                "what was tried: `sizes`, `is_hidden`, `distribution`, `seed`, `outcome` (`right`, `wrong`, `unsafe`, "
                "`refused`, `not asked`), `varied` (the input that alone was drawn anew), `device`, `seconds`, "
                "`layout` (of the inputs in memory)"
            ),
        ),
        (
            "timings",
            "array of objects",
            (
                "times on a GPU by size: `sizes`, `time_us`, `low_us`, `high_us`, `baseline_us`, `speedup`, "
                "`speedup_low`, `speedup_high`, `roofline_us`, `is_launch_bound`, `samples`"
            ),
        ),
        ("speedup", "number or null", "over the baseline: the geometric mean over the timed sizes"),
        ("speedup_low", "number or null", "the lower bound of that"),
        ("speedup_high", "number or null", "the upper bound"),
        ("notes", "array of strings", "remarks"),
        ("isolation", "array of strings", "what kept the candidate's process apart"),
        ("kernels", "array of strings", "the kernels that it launches"),
        ("name", "string", "the name of the candidate's file"),
        ("specification", "string", "the SHA-256 digest of the specification"),
        ("candidate", "string", "the SHA-256 digest of the candidate"),
        ("environment", "object", "versions by name"),
        ("options", "object", "of the call: `sizes` (null: the specification's), `time`, `timeout_s`"),
        ("nonce", "string", "the text that the caller gave"),
        ("seed", "integer", "what the inputs were drawn with"),
        ("seconds", "number", "the wall time of all of it"),
        ("signature", "string", 'the HMAC of the line before this field, or `""` without a key'),
    ),
    "ls": _fields(
        ("search", "string", "what was searched for"),
        ("rows", "array of objects", "a row per version, the best match first"),
    ),
    "merge": _fields(
        ("source", "string", "what was merged"),
        ("versions", "array of strings", "the versions that came, by their labels here: `name@2`"),
        ("new", "integer", "how many measurements are new"),
        ("known", "integer", "how many were here before"),
        ("rows", "array of objects", "a row per launch, device and conditions of their kernels, whoever measured it"),
        (
            "conflicts",
            "array of objects",
            'what disagrees: `kind` (`time`, `status`, `choice`), `by` (what differs, or `""`), `text`',
        ),
    ),
    "regressions": _fields(
        ("kernel", "string or null", "the kernel that was asked for; null for all"),
        ("since", "number or null", "from when on changes count, in seconds since 1970"),
        ("margin", "number", "by how much medians differ at least, as a share"),
        ("summary", "string", "how many launches became what"),
        ("rows", "array of objects", "a row per launch and change, then one per config of it; the worst first"),
    ),
    "upgrade": _fields(
        ("store", "string", 'the file of the store, or `""` in memory'),
        ("before", "array of strings", "the versions of Triton that the winners were compiled under"),
        ("after", "string", "the installed version of Triton"),
        ("summary", "string", "how many winners became what"),
        ("notes", "array of strings", "what was not compared"),
        ("rows", "array of objects", "a row per winner, then one per neighbour; the worst first"),
    ),
    "harvest": _fields(
        ("program", "string", "the script or module that ran"),
        ("status", "integer", "its exit status, which is that of the command"),
        ("seconds", "number", "how long it was harvested"),
        ("unknown_replays", "integer", "replays of CUDA graphs whose launches are not known"),
        ("rest", "object", "launches by kernel of the cases beyond the limit"),
        ("rows", "array of objects", "a row per kernel and case, those that take the most time first"),
    ),
    "export": _fields(
        ("path", "string", "the file"),
        ("label", "string", "the version that was written: `name@2`"),
        ("kind", "string", f"one of {', '.join(f'`{kind}`' for kind in EXPORT_KINDS)}"),
        ("notes", "array of strings", "remarks"),
    ),
}
"""By command, what follows the head. ``compile --stage`` adds ``text``, the text of the stage."""


_GATE = _fields(
    ("verdict", "string", "`within`, `faster`, `slower`, `different`, `undecided` or, without a GPU, `suspect`"),
    ("margin", "number", "the slowdown that is allowed, as a share"),
    ("budget_s", "number", "the limit of the rounds"),
    ("device", "string", "the GPU; without one, that of the prediction"),
    ("earlier", "string", "the name of the earlier revision"),
    ("later", "string", "that of the later"),
    ("ratio", "number or null", "the time of the later by that of the earlier; null without a GPU, as are all times"),
    ("ratio_low", "number or null", "the lower bound of that, 0 before there is one"),
    ("ratio_high", "number or null", "the upper bound, null before there is one"),
    ("earlier_ms", "number or null", "the median of the earlier"),
    ("later_ms", "number or null", "that of the later"),
    ("rounds", "integer or null", "how often each was timed"),
    ("blocks", "integer or null", "the independent blocks of rounds"),
    ("seconds", "number or null", "how long the rounds took"),
    ("predicted_ratio", "number or null", "the predicted time of the later by that of the earlier, without a GPU"),
    ("reasons", "array of strings", "what became worse, without a GPU"),
    ("difference", "string", 'in what the outputs differ; `""` where they agree or were not compared'),
    ("notes", "array of strings", "remarks"),
    ("summary", "string", "the verdict in a sentence"),
)


_OPTIONS = _fields(
    ("num_warps", "integer or null", "warps of a program, as the config sets it"),
    ("num_stages", "integer or null", "stages of a pipelined loop"),
    ("num_ctas", "integer or null", "blocks of a cluster"),
    ("maxnreg", "integer or null", "the limit of registers of a thread"),
)
_PREDICTED = tuple(JsonField(name, column.type, column.meaning) for name, column in PREDICTED_COLUMNS.items())
_BITS = tuple(JsonField(name, column.type, column.meaning) for name, column in BITS_COLUMNS.items())
_OUTCOME = tuple(JsonField(name, column.type, column.meaning) for name, column in OUTCOME_COLUMNS.items())


def _side(side: str) -> tuple[JsonField, ...]:
    """Return the fields of the launch before or after a change; all are null where there is none."""
    return _fields(
        (f"{side}_version", "string or null", f"the version of the kernel {side}: `name@2`"),
        (f"{side}_triton", "string or null", "the version of Triton"),
        (f"{side}_driver", "string or null", "the version of the driver"),
        (f"{side}_config", "string or null", "the config in words"),
        (f"{side}_time_ms", "number or null", "the median"),
        (f"{side}_low_ms", "number or null", "the lower bound of it"),
        (f"{side}_high_ms", "number or null", "the upper bound"),
        (f"{side}_samples", "integer or null", "how often it was timed"),
        (f"{side}_created", "number or null", "when, in seconds since 1970"),
    )


def _compiled_side(side: str) -> tuple[JsonField, ...]:
    """Return the fields of a compile before or after an upgrade; all are null where there is none."""
    return _fields(
        (f"{side}_triton", "string or null", f"the version of Triton {side}"),
        (f"{side}_registers", "integer or null", "of a thread"),
        (f"{side}_spill_bytes", "integer or null", "of a thread"),
        (f"{side}_shared_bytes", "integer or null", "of a block"),
        (f"{side}_occupancy", "number or null", "the theoretical share of resident warps, 0 to 1"),
        (f"{side}_wavefronts", "number or null", "of shared memory, over the launch"),
        (f"{side}_predicted_ms", "number or null", "the predicted time"),
    )


ROWS: Mapping[str, tuple[JsonField, ...]] = {
    "traffic": _fields(
        ("line", "integer or null", "of the source"),
        ("file", "string or null", "the file of the source"),
        ("operation", "string", "`load`, `store` or `atomic`"),
        ("space", "string", "`global` or `shared`"),
        ("argument", "string or null", "the argument; null in shared memory that no argument fills"),
        ("requests", "integer", "instructions of warps"),
        ("sectors", "integer", "of 32 bytes that they move in global memory"),
        ("ideal_sectors", "integer", "that would hold what they use"),
        ("wavefronts", "integer", "in which shared memory answers them"),
        ("conflicts", "integer", "wavefronts that bank conflicts add"),
        ("bytes", "integer", "that are moved: 32 for a sector, 128 for a wavefront"),
        ("bytes_used", "integer", "that threads asked for, each once per request"),
        (
            "efficiency",
            "number or null",
            "used over moved; in shared memory, the share of wavefronts without conflicts",
        ),
        ("lanes_off", "number", "the share of threads that were masked off"),
        ("instruction", "string", "the instruction of PTX"),
    ),
    "tune": (*_OPTIONS, *_OUTCOME, *_PREDICTED, *_BITS),
    "bench": (
        *_fields(("implementation", "string", "what was measured: the kernel or a peer")),
        *_OPTIONS,
        *_OUTCOME,
        *_fields(
            ("speedup", "number or null", "how many times longer the reference takes"),
            ("speedup_low", "number or null", "the lower bound of that"),
            ("speedup_high", "number or null", "the upper bound"),
            ("bytes", "integer or null", "what a launch moves, if each byte moves once"),
            ("flops", "integer or null", "what its dots compute"),
            ("fp_ops", "integer or null", "other floating-point operations"),
            ("intensity", "number or null", "flops per byte"),
            ("share", "number or null", "the part of the ceiling of the device that is reached"),
            ("bound", "string or null", "which ceiling that is: `memory` or `compute`"),
            ("dot_dtype", "string or null", "the dtype of the dots"),
            ("clock_mhz", "integer or null", "of the device meanwhile"),
            ("temperature_c", "integer or null", "of the device meanwhile"),
            ("device", "string or null", "the model; null without a GPU"),
            ("driver", "string or null", "its version"),
            ("target", "string", "what was compiled for"),
            ("triton", "string", "the version of Triton"),
            ("torch", "string", "the version of torch"),
            ("created", "string", "when, as ISO 8601"),
        ),
    ),
    "merge": _fields(
        ("kernel", "string", "the kernel"),
        ("launch", "string", "the sizes in which its launches differ, in words"),
        ("device", "string", "the model of the GPU"),
        ("version", "string", "the version of the kernel: `name@2`"),
        ("triton", "string", "the version of Triton"),
        ("driver", "string", "the version of the driver"),
        ("config", "string", "the fastest config that is known, in words"),
        ("status", "string", "`ok`, or what became of its last config where none works"),
        ("time_ms", "number or null", "the median of the fastest"),
        ("low_ms", "number or null", "the lower bound of it"),
        ("high_ms", "number or null", "the upper bound"),
        ("configs", "integer", "how many configs are known"),
        ("origin", "string", "whose measurements these are: `here`, `there` or `both`"),
        ("conflict", "string", 'the kind of a conflict that it is part of, or `""`'),
    ),
    "regressions": (
        *_fields(
            ("kernel", "string", "the kernel"),
            ("launch", "string", "the sizes in which its launches differ, in words"),
            ("device", "string", "the model of the GPU"),
            ("config", "string", "the config in words; `fastest` for the fastest before and after"),
            (
                "became",
                "string",
                "`slower`, `faster`, `same`, `open` (needs more samples), `fails`, `works` or `incomparable`",
            ),
            ("by", "string", "what changed: `Triton 3.6.0 to 3.9.0`; all that did, where several did at once"),
            ("ratio", "number or null", "the time after by the time before"),
            ("ratio_low", "number or null", "the lower bound of that"),
            ("ratio_high", "number or null", "the upper bound"),
            ("reason", "string", "why it cannot be compared, fails, or is open"),
        ),
        *_side("before"),
        *_side("after"),
    ),
    "upgrade": (
        *_fields(
            ("kernel", "string", "the version of the kernel: `name@2`"),
            ("launch", "string", "its sizes in words"),
            ("config", "string", "the config in words"),
            ("is_winner", "boolean", "false of a neighbour of a winner among the stored configs"),
            ("outcome", "string", "`fails`, `slower`, `suspect`, `unknown`, `cleared` or `same`"),
            ("why", "string", "the reasons in words, or why it cannot be compared"),
            ("basis", "string", '`code` or `resources`: how much was kept; `""` without'),
            ("ratio", "number or null", "the predicted time after by that before"),
            ("stage", "string or null", 'the first stage that differs, `""` where none does; null without `--python`'),
            ("stage_lines", "array of strings", "its lines, with the operations that are gone and new"),
            ("became", "string or null", "what its measured time became; null where it was not timed again"),
            ("best", "string or null", 'the config that is fastest now, `""` where it is this one'),
        ),
        *_compiled_side("before"),
        *_compiled_side("after"),
    ),
    "harvest": _fields(
        ("kernel", "string", "its name"),
        ("sizes", "string", "the integers among its arguments, in words"),
        ("shapes", "string", "the shapes of its tensors, in words"),
        ("config", "string", "what an autotuner sets, and the options, in words"),
        ("grid", "array of integers", "three extents"),
        ("count", "integer", "launches that ran, without trials, with those of replayed graphs"),
        ("share", "number or null", "of the time of all rows, 0 to 1"),
        ("ms", "number or null", "the time of a launch"),
        ("total_ms", "number or null", "the time of all"),
        ("basis", "string", "how that is known: `sampled`, `graph`, `predicted` or nothing"),
        ("samples", "integer", "launches whose time was measured"),
        ("bound_ms", "number or null", "the time of its roofline"),
        ("times_bound", "number or null", "`ms` by `bound_ms`"),
        ("bound", "string", "what limits it, as predicted"),
        ("no_roofline", "string", "why it cannot be predicted, or empty"),
        ("launches", "integer", "launches that ran when they were made"),
        ("trials", "integer", "those of them by which an autotuner timed its configs"),
        ("captured", "integer", "launches that went into a CUDA graph"),
        ("replayed", "integer", "launches that replays of graphs made"),
        (
            "origin",
            "string",
            "`triton`; of torch.compile `compile` for a kernel of yours, `inductor` for its own",
        ),
        ("module", "string", "the module of the kernel"),
        ("file", "string", "its file"),
        ("line", "integer", "its line there"),
    ),
    "ls": _fields(
        ("id", "integer", "the number of the version"),
        ("label", "string", "`name@2`"),
        ("cell", "string", "the cell or file that it comes from"),
        ("created", "number", "seconds since 1970"),
        ("launches", "integer", "how often cells launched it"),
        ("runs", "integer", "how often it was run for a trial, as by `run`"),
        ("last_launch", "number or null", "seconds since 1970"),
        ("config", "string", "the best config that was measured, else that of the last launch"),
        ("best_ms", "number or null", "the best time"),
        ("where", "string", "what that was measured on"),
        ("tags", "array of strings", "its tags"),
        ("notes", "array of strings", "its notes"),
        ("notebook", "string", 'the notebook that defined it, or `""`'),
        ("status", "string", " or ".join(f"`{status}`" for status in VersionStatus)),
        ("last_config", "string", "the config of the last launch, in words"),
        ("error", "string", "why its last compile or launch failed, where the status is `failed`"),
    ),
}
"""By command, the fields of each of its ``rows``. Before them stand, in ``tune``, the parameters of the configs; in
``bench``, what was swept, and after ``implementation`` the parameters of configs."""
GATE = (*_OF_FILE, *_GATE, *_compiled_side("before"), *_compiled_side("after"))
"""What follows the head with ``bench --against``."""
