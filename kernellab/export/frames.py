"""DataFrames as files: CSV, JSON or Parquet that other programs read, and that come back whole."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernellab.errors import KernellabError, UsageError, choice_message, first_line
from kernellab.launch.calls import verb
from kernellab.source import parsed_json, require
from kernellab.workers.forks_and_interrupts import imported_whole

_ABSENT = "<NA>"
_PAIRS = "__pairs__"
_FORMATS = (".csv", ".json", ".parquet")
_FILE_BYTES = 128 * 2**20
_CELLS = 50_000_000
_TEXTUAL = {"object", "str", "string"}
_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # and what `_escaped` made of one
# astype takes sizes, too: "S1000000000" is a gigabyte for every row
_DTYPE = re.compile(
    r"object|str|string|category|bool|boolean|[uU]?[iI]nt(8|16|32|64)|[fF]loat(16|32|64)|complex(64|128)"
    r"|(datetime|timedelta)64\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]"
)
_REFUSALS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    OSError,
    RecursionError,
    csv.Error,
)


@verb
def save_frame(found: Any, path: str | Path, *, escape: bool = True) -> Path:
    """Write a DataFrame as CSV, JSON or Parquet, by the ending of ``path``, so that `read_frame` gives it back whole.

    Dtypes and attributes are in a comment on the first line of a CSV, beside the rows of JSON, and in the metadata of
    Parquet. Other programs read the files too; a value that is absent is ``<NA>`` in a CSV. There, with ``escape``, a
    text that a spreadsheet would take for a formula begins with an apostrophe, which `read_frame` takes off again
    (https://owasp.org/www-community/attacks/CSV_Injection).

    Raises:
        UsageError: it is no DataFrame, has two columns of one name or something that cannot be written, the ending is
            another one, or Parquet's library is not installed.
    """
    imported_whole("pandas")
    import pandas as pd

    path = Path(path)
    suffix = _format(path)
    if not isinstance(found, pd.DataFrame):
        raise UsageError(f"save_frame got a {type(found).__name__}; expected a pandas.DataFrame.")
    _require_different(list(map(str, found.columns)), path)
    with _refusing(f"{str(path)!r} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        attrs = json.loads(json.dumps(_encoded(found.attrs), default=_plain))
        about = {"columns": list(map(str, found.columns)), "dtypes": [str(t) for t in found.dtypes], "attrs": attrs}
        match suffix:
            case ".csv":
                rows = (_escaped(found) if escape else found).to_csv(index=False, na_rep=_ABSENT)
                first = _without_formulas(json.dumps({**about, "escaped": True})) if escape else json.dumps(about)
                _write(path, f"# {first}\n{rows}")
            case ".json":
                rows = found.astype(object).where(found.notna(), None).to_numpy().tolist()
                _write(path, json.dumps({**about, "rows": rows}, default=_plain))
            case _:
                copy = found.copy(deep=False)
                copy.attrs = {"kernellab": about}
                _with_parquet(lambda: copy.to_parquet(path, index=False))
    return path


@verb
def read_frame(path: str | Path) -> Any:
    """Return what `save_frame` wrote: with its dtypes and attributes.

    Raises:
        UsageError: there is no such file, it is of another kind, or too large, or its content is not what it says.
    """
    path = Path(path)
    suffix = _format(path)
    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r}.")
    if path.stat().st_size > _FILE_BYTES:
        raise UsageError(f"{str(path)!r} has {path.stat().st_size:,} bytes; expected at most {_FILE_BYTES:,}.")
    with _refusing(f"{str(path)!r} cannot be read"):
        found = {".csv": _read_csv, ".json": _read_json, ".parquet": _read_parquet}[suffix](path)
        if found is None:
            raise UsageError(f"{str(path)!r} was not written by save_frame; read it with pandas.")
        return _restored(*found)


def _read_csv(path: Path) -> tuple[Any, dict[str, Any]] | None:
    imported_whole("pandas")
    import pandas as pd

    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    if not first.startswith("# {"):
        return None
    about = _required(parsed_json(first.removeprefix("# ")))
    if not about["columns"]:
        return pd.DataFrame(), about
    # pandas before 3.1 reads floats inexactly; made of texts, they are exact
    kinds = [kind for _, kind in _kinds(about)]
    texts = {i: str for i, kind in enumerate(kinds) if kind in {*_TEXTUAL, "float64"}}
    given = next(csv.reader(io.StringIO(rest)), [])
    names = [_unescaped(name) for name in given] if about.get("escaped") else given
    require(names == about["columns"], "the header", names, f"{about['columns']}")
    whole = io.StringIO(rest)
    columns = range(len(kinds))
    read = pd.read_csv(whole, header=0, names=columns, dtype=texts, keep_default_na=False, na_values=[_ABSENT])
    read.columns = about["columns"]
    require(isinstance(read.index, pd.RangeIndex), "a row", "longer", "as many cells as columns")
    for name, kind in _kinds(about):
        if about.get("escaped") and kind in _TEXTUAL:
            read[name] = read[name].map(_unescaped, na_action="ignore")
    return read, about


def _read_json(path: Path) -> tuple[Any, dict[str, Any]] | None:
    imported_whole("pandas")
    import pandas as pd

    about = parsed_json(path.read_text(encoding="utf-8"), _FILE_BYTES, _CELLS // 2)
    if not isinstance(about, dict) or "rows" not in about:
        return None
    rows = about["rows"]
    width = len(_required(about)["columns"])
    whole = isinstance(rows, list) and all(isinstance(row, list) and len(row) == width for row in rows)
    require(whole, "rows", "something else", f"a list of lists of {width} values")
    return pd.DataFrame(rows, columns=about["columns"]), about


def _read_parquet(path: Path) -> tuple[Any, dict[str, Any]] | None:
    imported_whole("pandas")
    import pandas as pd

    found = _with_parquet(lambda: _whole_parquet(path) and pd.read_parquet(path))
    about = found.attrs.get("kernellab")
    return None if about is None else (found, _required(about))


def _whole_parquet(path: Path) -> bool:
    """Tell that a file may be read: what it says of its size is bounded, whatever it is compressed to."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    found = parquet.read_metadata(path)
    groups = [found.row_group(index) for index in range(found.num_row_groups)]
    cells, unpacked = found.num_rows * max(found.num_columns, 1), sum(group.total_byte_size for group in groups)
    require(cells <= _CELLS, "the number of its cells", cells, f"at most {_CELLS:,}")
    require(unpacked <= 4 * _FILE_BYTES, "its unpacked size", unpacked, f"at most {4 * _FILE_BYTES:,} bytes")
    return True


def _required(about: Any) -> dict[str, Any]:
    """Return what a file says of its columns, checked."""
    require(isinstance(about, dict), "its description", about, "an object")
    for name in ("columns", "dtypes"):
        found = about[name]
        texts = isinstance(found, list) and all(isinstance(each, str) for each in found)
        require(texts, name, found, "a list of texts")
    require(len(about["columns"]) == len(about["dtypes"]), "dtypes", about["dtypes"], "one for each column")
    require(len(set(about["columns"])) == len(about["columns"]), "columns", about["columns"], "names that differ")
    for kind in about["dtypes"]:
        require(_DTYPE.fullmatch(kind) is not None, "a dtype", kind, "one that save_frame writes")
    require(isinstance(about["attrs"], dict), "attrs", about["attrs"], "an object")
    return about  # type: ignore[no-any-return]


def _restored(found: Any, about: dict[str, Any]) -> Any:
    require(list(found.columns) == about["columns"], "its columns", list(found.columns), str(about["columns"]))
    for name, kind in _kinds(about):
        column = found[name]
        if kind.startswith("datetime"):
            found[name] = _moments(column, kind)
        elif kind == "object":
            found[name] = column.astype(object).where(column.notna(), None)
        else:
            found[name] = column.astype(kind)
    found.attrs = _decoded(about["attrs"])
    return found


def _kinds(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    return zip(about["columns"], about["dtypes"], strict=True)


def _require_different(names: list[str], path: Path) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{str(path)!r} cannot be written: two columns are called {twice!r}.")


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn what pandas and pyarrow raise about a file or a DataFrame into `UsageError`."""
    try:
        yield
    except KernellabError:
        raise
    except KeyError as exc:
        raise UsageError(f"{what}: it lacks {exc}.") from exc
    except _REFUSALS as exc:
        raise UsageError(f"{what}: {first_line(exc)}.") from exc


def _write(path: Path, text: str) -> None:
    content = text.encode()
    if len(content) > _FILE_BYTES:
        raise UsageError(f"{str(path)!r} would have {len(content):,} bytes; write a table this large as Parquet.")
    path.write_bytes(content)


def _escaped(found: Any) -> Any:
    """Return a DataFrame without texts that a spreadsheet would compute."""
    escaped = found.copy()
    for column, kind in enumerate(found.dtypes):
        if str(kind) in {*_TEXTUAL, "category"}:
            escaped.isetitem(column, found.iloc[:, column].astype(object).map(_escaped_text))
    return escaped.rename(columns=_escaped_text)


def _escaped_text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _unescaped(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _without_formulas(text: str) -> str:
    """Return JSON of which no cell begins a formula, however a comma in one of its texts divides it."""
    for character in "=@":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return re.sub(r",([+-])", lambda match: f",\\u{ord(match[1]):04x}", text)


def _encoded(value: Any) -> Any:
    """Return attributes with dicts as pairs where their keys are no texts, which JSON would make them."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _encoded(each) for key, each in value.items()}
        return {_PAIRS: [[key, _encoded(each)] for key, each in value.items()]}
    return [_encoded(each) for each in value] if isinstance(value, list | tuple) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_PAIRS}:
            return {key: _decoded(each) for key, each in value[_PAIRS]}
        return {key: _decoded(each) for key, each in value.items()}
    return [_decoded(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return value.item() if hasattr(value, "item") else str(value)


def _moments(column: Any, kind: str) -> Any:
    imported_whole("pandas")
    import pandas as pd

    return pd.to_datetime(column, utc=True, format="ISO8601").astype(kind)


def _format(path: Path) -> str:
    if path.suffix not in _FORMATS:
        raise UsageError(choice_message("the ending of the file", path.suffix, _FORMATS))
    return path.suffix


def _with_parquet(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except ImportError as exc:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow. CSV and JSON need nothing.") from exc
