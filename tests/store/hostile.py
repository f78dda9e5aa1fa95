"""Files and stores that were broken, by accident or on purpose: what a lab must survive, and must not execute.

Each is made from a sound one. Code in them leaves a file behind, the canary, should anything run it.
"""

from __future__ import annotations

import copy
import io
import json
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import triton
import triton.language as tl

from kernellab._triton.closure import decorated_closure_of, value_closure_of
from kernellab.export.exchange import bundle_bytes, read_bundle
from kernellab.registry import version_digest
from kernellab.store import Argument, Entry, Measurement, RecordedLaunch, Result, Store

Json = Any
HELPER_BLOCK = tl.constexpr(4)


@triton.jit
def twice(x, F: tl.constexpr = HELPER_BLOCK):
    return x * 2


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"], reset_to_zero=["out"])
@triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
@triton.jit
def scaled(
    x, out, n, offsets, base, pair, BLOCK: tl.constexpr, EVEN: tl.constexpr, KIND: tl.constexpr, F: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, mask=at < n)).to(KIND), mask=at < n)


def _tensor(name: str, **more: Any) -> Argument:
    given = {"dtype": "float32", "shape": (300,), "stride": (1,), "device": "cpu", "low": 0.0, "high": 1.0, **more}
    return Argument(name, "tensor", **given)


LAUNCH = RecordedLaunch(
    signature=(("x", "*fp32"), ("n", "i32")),
    arguments=(
        _tensor("x"),
        _tensor("out", alias="x"),
        Argument("n", "scalar", value=300),
        _tensor("offsets", dtype="int64", shape=(3,), values=(0, 1, 2), low=0, high=2),
        Argument("base", "descriptor", members=(_tensor("base.base", shape=(8, 8), stride=(8, 1)),), block=(4, 4)),
        Argument("pair", "tuple", members=(_tensor("pair[0]"), Argument("pair[1]", "scalar", value=2.5))),
        Argument("BLOCK", "scalar", constexpr=True, value=64),
        Argument("EVEN", "scalar", constexpr=True, value=True),
        Argument("KIND", "dtype", constexpr=True, value="fp32"),
        Argument("F", "function", constexpr=True, value="twice", source=value_closure_of(twice)),
    ),
    options={"num_warps": 2},
    grid=(5, 1, 1),
    target="cuda:80",
    where="interpreter",
    result="ab" * 32,
    config="BLOCK=64",
    grid_text="lambda meta: (triton.cdiv(n, meta['BLOCK']),)",
    check="torch.relu(x) * 2",
)
RESULT = Result("ab" * 32, "cuda:80", {"num_warps": 2}, {"registers": 8}, ("x",), ("out",), (), True, 0.5, "3.9.0")
MEASUREMENT = Measurement(
    '{"device":"H200"}', {"BLOCK": 64, "num_warps": 2}, "H200", "ok", 0.25, {"samples": 5, "standing": "winner"}
)


def sound_store(folder: Path | None) -> Store:
    """Return a store with one kernel, its helper, a launch, a result and a measurement."""
    store = Store(folder)
    closure = decorated_closure_of(scaled)
    entry = Entry("scaled", closure, version_digest(closure), ("good",), ("a note",), ((LAUNCH, 0.1, 3),))
    ((version, _),) = store.enter([entry])
    store.history.add_launch(version.id, LAUNCH, result=RESULT)
    store.history.add_measurements(version.id, [MEASUREMENT])
    return store


def sound_content() -> dict[str, Json]:
    """Return the JSON of a sound bundle."""
    store = sound_store(None)
    packed = bundle_bytes(store, store.versions()[0], "pass\n")
    store.close()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        content: dict[str, Json] = json.loads(archive.read("kernel.json"))
    return content


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def bundle_of(content: Json) -> bytes:
    return zipped(("kernel.json", content if isinstance(content, str | bytes) else json.dumps(content)), ("x.py", ""))


def paths_of(value: Json, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in some JSON."""
    yield above
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from paths_of(member, (*above, key))


def replaced(value: Json, path: tuple[Any, ...], new: Json) -> Json:
    """Return some JSON with another value at one place; what is not on the way there is shared."""
    if not path:
        return new
    found = copy.copy(value)
    found[path[0]] = replaced(found[path[0]], path[1:], new)
    return found


def removed(value: Json, path: tuple[Any, ...]) -> Json:
    """Return some JSON without the value at one place."""
    found = copy.copy(value)
    if path[1:]:
        found[path[0]] = removed(found[path[0]], path[1:])
    else:
        del found[path[0]]
    return found


WRONG: tuple[Json, ...] = (
    *(None, "many", [], {}, True, -1, 0, 1.5, 10**30, float("inf"), float("nan"), "\ud800", "x\0y", "", [[]]),
    *(["tuple"], ["Constant", 1], ["FunctionRef", 99], ["float", "zz"], ["Closure"]),
)


def with_wrong_values() -> Iterator[tuple[str, Json]]:
    """Yield the content of a sound bundle with each of its values missing, and replaced by ever another wrong one."""
    sound = sound_content()
    for number, path in enumerate(paths_of(sound)):
        where = "/".join(map(str, path)) or "all"
        if path:
            yield f"{where} missing", removed(sound, path)
        for step in (0, 7):
            wrong = WRONG[(number + step) % len(WRONG)]
            yield f"{where} is {str(wrong)[:20]!r}", replaced(sound, path, wrong)


def code(canary: Path) -> str:
    """Return an expression that leaves the canary."""
    return f"__import__('pathlib').Path({str(canary)!r}).touch()"


def with_code(canary: Path) -> Iterator[tuple[str, Json]]:
    """Yield contents of bundles with code where names, dtypes, numbers and formulas belong."""
    sound, run = sound_content(), code(canary)
    launch = ("launches", 0, "launch")
    places: dict[str, tuple[Any, ...]] = {
        "name": ("name",),
        "dtype": (*launch, "arguments", 0, "dtype"),
        "argument": (*launch, "arguments", 2, "name"),
        "alias": (*launch, "arguments", 1, "alias"),
        "kind": (*launch, "arguments", 2, "kind"),
        "member": (*launch, "arguments", 5, "members", 0, "name"),
        "layout": (*launch, "arguments", 4, "value"),
        "triton-dtype": (*launch, "arguments", 8, "value"),
        "function": (*launch, "arguments", 9, "value"),
        "shape": (*launch, "arguments", 0, "shape"),
        "grid": (*launch, "grid"),
        "grid-formula": (*launch, "grid_text"),
        "reference": (*launch, "check"),
        "option": (*launch, "options", "num_warps"),
        "status": ("measurements", 0, "status"),
    }
    for name, path in places.items():
        yield f"{name} is code", replaced(sound, path, run)
        yield f"{name} ends in code", replaced(sound, path, f"x); {run} #")
        yield f"{name} has a line of code", replaced(sound, path, f"float32\n{run}\n")
    for number, text in enumerate(
        (
            f"lambda meta: ({run},)",
            f"lambda meta: (1,)\n{run}",
            f"lambda meta, x={run}: (1,)",
            f"(lambda meta: ({run},))",
            "lambda meta: (meta.__class__.__mro__,)",
            "lambda meta: (x.__reduce__(),)",
            "lambda meta: (torch.hub.load('x', 'y'),)",
            "lambda meta: (torch.os.system('true'),)",
            "lambda meta: ([c for c in ().__class__.__base__.__subclasses__()],)",
            "lambda meta: (eval('1'),)",
            "lambda meta: (f'{x}',)",
            "lambda meta: ((yield),)",
            "lambda *meta: (1,)",
        )
    ):
        yield f"grid formula {number}", replaced(sound, (*launch, "grid_text"), text)
    for number, text in enumerate((f"{run}", "x.__class__", f"x\n{run}", "eval('1')", f"[{run} for _ in '1']")):
        yield f"reference {number}", replaced(sound, (*launch, "check"), text)
    yield "config with code for a name", replaced(sound, ("measurements", 0, "config"), {run: 1})
    yield "option with code for a name", replaced(sound, (*launch, "options"), {run: 1})
    kernel = sound["closure"]["closure"][1][1]
    at = ("closure", "closure", 1, 1)
    yield "two statements in a text", replaced(sound, (*at, 3), f"{kernel[3]}\n{run}\n")
    yield "a statement before the text", replaced(sound, (*at, 3), f"{run}\n{kernel[3]}")
    yield "a decorator in a text", replaced(sound, (*at, 3), f"@{run}\n{kernel[3]}")
    yield "a text that is no function", replaced(sound, (*at, 3), run)
    yield "a function called like code", replaced(sound, (*at, 1), run)
    yield "a line number of billions", replaced(sound, (*at, 5), 10**12)
    name = kernel[7][1][1]
    yield "an import of code", replaced(sound, (*at, 7, 1, 2), ["Import", f"os; {run}", "", ""])
    yield "an attribute of code", replaced(sound, (*at, 7, 1, 2), ["Import", "os", f"path; {run}", ""])
    yield "members of code", replaced(sound, (*at, 7, 1, 2), ["Members", f"triton.x; {run}", ["tuple"]])
    yield "a dtype of code", replaced(sound, (*at, 7, 1, 2), ["Dtype", f'fp16"); {run} #'])
    yield "a global called like code", replaced(sound, (*at, 7, 1, 1), f"{name}; {run}")


def _deep(depth: int, opening: str, closing: str) -> str:
    return opening * depth + closing * depth


def broken_files(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files that are no bundles, or more than one."""
    sound = sound_content()
    text, whole = json.dumps(sound), bundle_of(sound)
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        yield f"cut after {share:.0%}", whole[: int(share * len(whole))]
    for at in (0, 10, 40, len(whole) // 2, len(whole) - 30, len(whole) - 12):
        yield f"a broken byte at {at}", whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :]
    yield "text", b"no zip"
    yield "json without a zip", text.encode()
    yield "an empty archive", zipped()
    yield "no kernel.json", zipped(("other.json", text))
    yield "kernel.json twice", zipped(("kernel.json", text), ("KERNEL.json", "{}")).replace(b"KERNEL", b"kernel")
    for name in ("../kernel.py", "/tmp/kernel.py", "a/b.py", "..\\kernel.py", "C:kernel.py"):
        yield f"a file called {name}", zipped(("kernel.json", text), (name, "x"))
    link = zipfile.ZipInfo("kernel.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    yield "kernel.json is a link", zipped((link, str(canary)))
    other = zipfile.ZipInfo("link.py")
    other.external_attr = (stat.S_IFLNK | 0o777) << 16
    yield "a link beside kernel.json", zipped(("kernel.json", text), (other, "/etc/passwd"))
    yield "a hundred files", zipped(("kernel.json", text), *((f"x{i}", "") for i in range(100)))
    yield "lists, 10,000 deep", bundle_of(_deep(10_000, "[", "]"))
    yield "lists, 100,000 deep", bundle_of(_deep(100_000, "[", "]"))
    yield "objects, 10,000 deep", bundle_of(_deep(10_000, '{"a":', "1}").replace("1}", "1", 1) + "}")
    yield "a note, 500 deep", bundle_of(text.replace('"a note"', _deep(500, "[", "]")))
    yield "a binding, 500 deep", bundle_of(text.replace('"Constant"', _deep(0, "", "") + '"Constant"'[:-1] + 'x"'))
    yield "many values", bundle_of("[" + "[]," * 3_000_000 + "[]]")
    yield "no UTF-8", bundle_of(b'{"schema": "\xff\xfe"}')
    yield "UTF-16", bundle_of(text.encode("utf-16"))
    yield "a number of 5,000 digits", bundle_of(text.replace('"count": 4', f'"count": {"9" * 5_000}'))
    for schema in (0, -1, 2, 10**30, "1", None, [1], 1.5):
        yield f"schema {schema!r}", bundle_of({**sound, "schema": schema})
        yield f"closure of schema {schema!r}", bundle_of(replaced(sound, ("closure", "schema"), schema))
    for name in ("../../x", "/etc/x", "x@7", "a b", "", "x.py", "class", "ﬁle", "x\u202ey", "x\n", "a-b", "1x", ".."):
        yield f"a kernel called {name!r}", bundle_of({**sound, "name": name})


def bombs() -> Iterator[tuple[str, bytes]]:
    """Yield bundles of some megabytes that unpack to gigabytes."""
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("kernel.json", "w") as file:
        for _ in range(256):
            file.write(b" " * 2**20)
    yield "256 MB of spaces", zeros.getvalue()
    packed = zeros.getvalue()
    at = packed.rindex(b"PK\x01\x02") + 24
    yield "256 MB that call themselves 1 KB", packed[:at] + struct.pack("<I", 1024) + packed[at + 4 :]
    yield "a file beside kernel.json of 256 MB", zipped(("kernel.json", "{}"), ("x.py", b" " * 2**28))
    yield "20 MB that are not packed", b"PK\x03\x04" + b"\0" * 20 * 2**20


def enter(store: Store, folder: Path) -> Callable[[bytes], None]:
    """Return what reads the bytes of a bundle into a store."""

    def read(content: bytes) -> None:
        (folder / "x.zip").write_bytes(content)
        read_bundle(store, folder / "x.zip")

    return read


WRONG_CELLS: tuple[Any, ...] = (
    *(None, "many", "", -1, 0, 1.5, float("inf"), 2**62, b"\xff\xfe", "{}", "[]", "null", '{"a":', "x\0y", "[" * 9_999),
    *('{"a": 1e999}', '["Constant", 1]', "é@7", "../../x", "=1+1"),
)
TABLES = ("kernels", "versions", "tags", "notes", "launches", "results", "measurements")


def contents(store: Store) -> list[Any]:
    """Return all rows of a store."""
    return [store.database.rows(f"SELECT * FROM {table}") for table in TABLES]


def columns(store: Store) -> Iterator[tuple[str, str]]:
    for table in TABLES:
        for row in store.database.rows("SELECT name FROM pragma_table_info(?)", (table,)):
            yield table, str(row[0])


def _csv(about: Json, rows: str = "a,b\n1,x\n") -> bytes:
    return f"# {json.dumps(about)}\n{rows}".encode()


def tables() -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of files that are no tables of `save_frame`."""
    sound = {"columns": ["a", "b"], "dtypes": ["int64", "object"], "attrs": {}}
    wrong: tuple[tuple[str, Json], ...] = (
        ("no columns", {"dtypes": [], "attrs": {}}),
        ("no dtypes", {"columns": ["a", "b"], "attrs": {}}),
        ("no attrs", {"columns": ["a", "b"], "dtypes": ["int64", "object"]}),
        ("columns of another file", {**sound, "columns": ["a", "c"]}),
        ("a column too many", {**sound, "columns": ["a", "b", "c"], "dtypes": ["int64", "object", "object"]}),
        ("a column twice", {**sound, "columns": ["a", "a"]}),
        ("a dtype too few", {**sound, "dtypes": ["int64"]}),
        ("an unknown dtype", {**sound, "dtypes": ["int64", "nothing"]}),
        ("a dtype that does not fit", {**sound, "dtypes": ["int64", "datetime64[ns, UTC]"]}),
        ("a dtype of a gigabyte a row", {**sound, "dtypes": ["int64", "S1000000000"]}),
        ("a dtype of code", {**sound, "dtypes": ["int64", "__import__('os')"]}),
        ("numbers for texts", {**sound, "dtypes": ["int64", "float64"]}),
        ("dtypes that are numbers", {**sound, "dtypes": [1, 2]}),
        ("columns that are a text", {**sound, "columns": "ab"}),
        ("attrs that are a list", {**sound, "attrs": [1]}),
        ("nothing", None),
        ("a time zone of nowhere", {**sound, "dtypes": ["int64", "datetime64[ns, Nowhere/x]"]}),
    )
    for name, about in wrong:
        if about is not None:
            yield f"{name}.csv", _csv(about)
        if name == "columns of another file":
            continue  # those of JSON have no second name
        rows = {} if about is None else {**about, "rows": [[1, "x"]]}
        yield f"{name}.json", json.dumps(rows).encode()
    yield "rows too long.csv", _csv(sound, "a,b\n1,x,2\n")
    yield "rows longer later.csv", _csv(sound, "a,b\n1,x\n1,x,2\n")
    yield "an open quote.csv", _csv(sound, 'a,b\n1,"x\n')
    yield "empty.csv", b""
    yield "no header.csv", _csv(sound, "")
    yield "a header that is cut.csv", b'# {"columns": ["a"'
    yield "deep.csv", b"# {" + b"[" * 10_000 + b"\na\n1\n"
    yield "no UTF-8.csv", b"\xff\xfe\x00a,b\n"
    yield "NUL.csv", _csv(sound, "a,b\n\0,x\n")
    yield "empty.json", b""
    yield "cut.json", b'{"columns": ["a"], "rows": [[1'
    yield "deep.json", _deep(10_000, "[", "]").encode()
    yield "a list.json", b"[1, 2]"
    yield "rows of other lengths.json", json.dumps({**sound, "rows": [[1, "x"], [1]]}).encode()
    yield "rows that are no lists.json", json.dumps({**sound, "rows": [1, 2]}).encode()
    yield "rows that are a text.json", json.dumps({**sound, "rows": "xy"}).encode()
    yield "rows of lists.json", json.dumps({**sound, "rows": [[[1], "x"]]}).encode()
    yield "empty.parquet", b""
    yield "text.parquet", b"no table"
    yield "the ends of one.parquet", b"PAR1" + b"\0" * 64 + b"PAR1"
    yield "a footer of gigabytes.parquet", b"PAR1" + struct.pack("<I", 2**31) + b"PAR1"
    yield "a zip.parquet", zipped(("a", "b"))
