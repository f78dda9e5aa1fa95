"""DataFrames as files: CSV, JSON or Parquet, readable by other programs, restored in full by `read_frame`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernellab.errors import KernellabError, UsageError, choice_message, first_line
from kernellab.launch.verbs import verb
from kernellab.source import parse_json, require
from kernellab.workers.forks_and_interrupts import import_uninterrupted

_ABSENT = "<NA>"
_PAIRS = "__pairs__"
_FORMATS = (".csv", ".json", ".parquet")
_FILE_BYTES = 128 * 2**20
_CELLS = 50_000_000
_TEXTUAL = {"object", "str", "string"}
_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # and an escaped one
# astype accepts sizes: "S1000000000" is a gigabyte per row
_DTYPE = re.compile(
    r"object|str|string|category|bool|boolean|[uU]?[iI]nt(8|16|32|64)|[fF]loat(16|32|64)|complex(64|128)"
    r"|(datetime|timedelta)64\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]"
)
_REFUSALS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(NotImplementedError, OSError, RecursionError, csv.Error),
)


@verb
def save_frame(frame: Any, path: str | Path, *, escape: bool = True) -> Path:
    """Write a DataFrame as CSV, JSON or Parquet, by the ending of ``path``, so that `read_frame` gives it back whole.

    Dtypes and attributes are in a comment on the first line of a CSV, next to the rows of JSON, and in the metadata of
    Parquet. A missing value is ``<NA>`` in a CSV. With ``escape``, a text in a CSV that a spreadsheet would take for a
    formula begins with an apostrophe, which `read_frame` removes
    (https://owasp.org/www-community/attacks/CSV_Injection).

    Raises:
        UsageError: it is not a DataFrame, has two columns of one name or something that cannot be written, the ending
            is another one, or Parquet's library is not installed.
    """
    pd = import_uninterrupted("pandas")
    path = Path(path)
    suffix = _file_format(path)
    if not isinstance(frame, pd.DataFrame):
        raise UsageError(f"save_frame got a {type(frame).__name__}; expected a pandas.DataFrame.")
    names = list(map(str, frame.columns))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{str(path)!r} cannot be written: two columns are called {twice!r}.")
    with _raising_usage_errors(f"{str(path)!r} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        attrs = json.loads(json.dumps(_encode_attrs(frame.attrs), default=_json_value))
        description = {"columns": names, "dtypes": [str(t) for t in frame.dtypes], "attrs": attrs}
        match suffix:
            case ".csv":
                rows = (_escape_formulas(frame) if escape else frame).to_csv(index=False, na_rep=_ABSENT)
                about = json.dumps({**description, "escaped": True} if escape else description)
                first = _escape_json_formulas(about) if escape else about
                _write(path, f"# {first}\n{rows}")
            case ".json":
                rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
                _write(path, json.dumps({**description, "rows": rows}, default=_json_value))
            case _:
                copy = frame.copy(deep=False)
                copy.attrs = {"kernellab": description}
                with _needing_pyarrow():
                    copy.to_parquet(path, index=False)
    return path


@verb
def read_frame(path: str | Path) -> Any:
    """Return the DataFrame of a file of `save_frame`, with its dtypes and attributes.

    Raises:
        UsageError: there is no such file, it is of another kind, or too large, or its content is not what it says.
    """
    path = Path(path)
    suffix = _file_format(path)
    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r}.")
    if path.stat().st_size > _FILE_BYTES:
        raise UsageError(f"{str(path)!r} has {path.stat().st_size:,} bytes; expected at most {_FILE_BYTES:,}.")
    with _raising_usage_errors(f"{str(path)!r} cannot be read"):
        frame_and_description = {".csv": _read_csv, ".json": _read_json, ".parquet": _read_parquet}[suffix](path)
        if frame_and_description is None:
            raise UsageError(f"{str(path)!r} was not written by save_frame; read it with pandas.")
        return _restore_types(*frame_and_description)


def _read_csv(path: Path) -> tuple[Any, dict[str, Any]] | None:
    pd = import_uninterrupted("pandas")
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    if not first.startswith("# {"):
        return None
    description = _require_description(parse_json(first.removeprefix("# ")))
    if not description["columns"]:
        return pd.DataFrame(), description
    # pandas before 3.1 parses floats inexactly; astype of a string is exact
    kinds = [kind for _, kind in _dtypes_by_column(description)]
    texts = {i: str for i, kind in enumerate(kinds) if kind in {*_TEXTUAL, "float64"}}
    header = next(csv.reader(io.StringIO(rest)), [])
    names = [_unescape_text(name) for name in header] if description.get("escaped") else header
    require(names == description["columns"], "the header", names, f"{description['columns']}")
    options: dict[str, Any] = {"names": range(len(kinds)), "dtype": texts, "na_values": [_ABSENT]}
    frame = pd.read_csv(io.StringIO(rest), header=0, keep_default_na=False, **options)
    frame.columns = description["columns"]
    require(isinstance(frame.index, pd.RangeIndex), "a row", "longer", "as many cells as columns")
    for name, kind in _dtypes_by_column(description):
        if description.get("escaped") and kind in _TEXTUAL:
            frame[name] = frame[name].map(_unescape_text, na_action="ignore")
    return frame, description


def _read_json(path: Path) -> tuple[Any, dict[str, Any]] | None:
    pd = import_uninterrupted("pandas")
    description = parse_json(path.read_text(encoding="utf-8"), _FILE_BYTES, _CELLS // 2)
    if not isinstance(description, dict) or "rows" not in description:
        return None
    rows = description["rows"]
    width = len(_require_description(description)["columns"])
    is_table = isinstance(rows, list) and all(isinstance(row, list) and len(row) == width for row in rows)
    require(is_table, "rows", "something else", f"a list of lists of {width} values")
    return pd.DataFrame(rows, columns=description["columns"]), description


def _read_parquet(path: Path) -> tuple[Any, dict[str, Any]] | None:
    pd = import_uninterrupted("pandas")
    with _needing_pyarrow():
        from pyarrow import parquet  # type: ignore[import-untyped]

        metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        cells, unpacked = metadata.num_rows * max(metadata.num_columns, 1), sum(g.total_byte_size for g in groups)
        require(cells <= _CELLS, "the number of its cells", cells, f"at most {_CELLS:,}")
        require(unpacked <= 4 * _FILE_BYTES, "its unpacked size", unpacked, f"at most {4 * _FILE_BYTES:,} bytes")
        frame = pd.read_parquet(path)
    description = frame.attrs.get("kernellab")
    return None if description is None else (frame, _require_description(description))


def _require_description(description: Any) -> dict[str, Any]:
    require(isinstance(description, dict), "its description", description, "an object")
    for name in ("columns", "dtypes"):
        texts = description[name]
        are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        require(are_texts, name, texts, "a list of texts")
    columns, dtypes = description["columns"], description["dtypes"]
    require(len(columns) == len(dtypes), "dtypes", dtypes, "one for each column")
    require(len(set(columns)) == len(columns), "columns", columns, "names that differ")
    for kind in dtypes:
        require(_DTYPE.fullmatch(kind) is not None, "a dtype", kind, "one that save_frame writes")
    require(isinstance(description["attrs"], dict), "attrs", description["attrs"], "an object")
    return description  # type: ignore[no-any-return]


def _restore_types(frame: Any, description: dict[str, Any]) -> Any:
    pd = import_uninterrupted("pandas")
    columns = list(frame.columns)
    require(columns == description["columns"], "its columns", columns, str(description["columns"]))
    for name, kind in _dtypes_by_column(description):
        column = frame[name]
        if kind.startswith("datetime"):
            frame[name] = pd.to_datetime(column, utc=True, format="ISO8601").astype(kind)
        elif kind == "object":
            frame[name] = column.astype(object).where(column.notna(), None)
        else:
            frame[name] = column.astype(kind)
    frame.attrs = _decode_attrs(description["attrs"])
    return frame


def _dtypes_by_column(description: dict[str, Any]) -> Iterator[tuple[str, str]]:
    return zip(description["columns"], description["dtypes"], strict=True)


@contextmanager
def _raising_usage_errors(what: str) -> Iterator[None]:
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


def _escape_formulas(frame: Any) -> Any:
    """Return a DataFrame with the texts escaped that a spreadsheet would compute."""
    escaped = frame.copy()
    for column, kind in enumerate(frame.dtypes):
        if str(kind) in {*_TEXTUAL, "category"}:
            escaped.isetitem(column, frame.iloc[:, column].astype(object).map(escape_formula))
    return escaped.rename(columns=escape_formula)


def escape_formula(value: Any) -> Any:
    """Return a cell of a CSV; a text that a spreadsheet would compute begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _unescape_text(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _escape_json_formulas(text: str) -> str:
    """Escape JSON so that none of its pieces between commas begins a spreadsheet formula."""
    for character in "=@":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return re.sub(r",([+-])", lambda match: f",\\u{ord(match[1]):04x}", text)


def _encode_attrs(value: Any) -> Any:
    """Encode dicts with keys that are not strings as lists of pairs, which JSON keeps."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _encode_attrs(item) for key, item in value.items()}
        return {_PAIRS: [[key, _encode_attrs(item)] for key, item in value.items()]}
    return [_encode_attrs(item) for item in value] if isinstance(value, list | tuple) else value


def _decode_attrs(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_PAIRS}:
            return {key: _decode_attrs(item) for key, item in value[_PAIRS]}
        return {key: _decode_attrs(item) for key, item in value.items()}
    return [_decode_attrs(item) for item in value] if isinstance(value, list) else value


def _json_value(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return value.item() if hasattr(value, "item") else str(value)


def _file_format(path: Path) -> str:
    if path.suffix not in _FORMATS:
        raise UsageError(choice_message("the ending of the file", path.suffix, _FORMATS))
    return path.suffix


@contextmanager
def _needing_pyarrow() -> Iterator[None]:
    try:
        yield
    except ImportError as exc:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow. CSV and JSON need nothing.") from exc
