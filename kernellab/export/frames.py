"""The history as DataFrames, one tidy row per kernel version, launch or measurement; and DataFrames as files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernellab.calls import verb
from kernellab.errors import UsageError, choice_message
from kernellab.registry.listing import listing
from kernellab.store import Argument, Store

TABLES = ("kernels", "launches", "measurements")
SCHEMA = 1
_ABSENT = "<NA>"
_PAIRS = "__pairs__"
_FORMATS = (".csv", ".json", ".parquet")
Row = dict[str, Any]


def frame(store: Store, table: str) -> Any:
    """Return a table of the store as a DataFrame. Times are in UTC; nested values are JSON.

    Raises:
        UsageError: there is no such table.
    """
    import pandas as pd  # keeps `import kernellab` light

    if table not in TABLES:
        raise UsageError(choice_message("table", table, TABLES))
    rows = list(_ROWS[table](store))
    found = pd.DataFrame(rows, columns=None if rows else _COLUMNS[table])
    for name in ("created", "last"):
        if name in found:
            found[name] = pd.to_datetime(found[name].astype(float), unit="s", utc=True)
    found.attrs = {"table": table, "schema": SCHEMA, "store": str(store.path or ":memory:")}
    return found


@verb
def save_frame(found: Any, path: str | Path) -> Path:
    """Write a DataFrame as CSV, JSON or Parquet, by the ending of ``path``, so that `read_frame` gives it back whole.

    Dtypes and attributes are in a comment on the first line of a CSV, beside the rows of JSON, and in the metadata of
    Parquet. Other programs read the files too; a value that is absent is ``<NA>`` in a CSV.

    Raises:
        UsageError: the ending is another one, or Parquet's library is not installed.
    """
    path = Path(path)
    suffix = _format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    attrs = json.loads(json.dumps(_encoded(found.attrs), default=_plain))
    about = {"columns": list(map(str, found.columns)), "dtypes": [str(t) for t in found.dtypes], "attrs": attrs}
    match suffix:
        case ".csv":
            text = found.to_csv(index=False, na_rep=_ABSENT)
            path.write_text(f"# {json.dumps(about)}\n{text}", encoding="utf-8")
        case ".json":
            rows = found.astype(object).where(found.notna(), None).to_numpy().tolist()
            path.write_text(json.dumps({**about, "rows": rows}, default=_plain), encoding="utf-8")
        case _:
            copy = found.copy(deep=False)
            copy.attrs = {"kernellab": about}
            _with_parquet(lambda: copy.to_parquet(path, index=False))
    return path


@verb
def read_frame(path: str | Path) -> Any:
    """Return what `save_frame` wrote: with its dtypes and attributes.

    Raises:
        UsageError: there is no such file, or it is of another kind.
    """
    import pandas as pd

    path = Path(path)
    suffix = _format(path)
    if not path.exists():
        raise UsageError(f"There is no file {str(path)!r}.")
    if suffix == ".parquet":
        found = _with_parquet(lambda: pd.read_parquet(path))
        about = found.attrs.get("kernellab")
    elif suffix == ".csv":
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        about = json.loads(first.removeprefix("# ")) if first.startswith("# {") else None
        # pandas before 3.1 reads floats inexactly; made of texts, they are exact
        texts = {} if about is None else {n: str for n, kind in _kinds(about) if kind in {*_TEXTUAL, "float64"}}
        found = pd.read_csv(io.StringIO(rest), dtype=texts, keep_default_na=False, na_values=[_ABSENT])
    else:
        about = json.loads(path.read_text(encoding="utf-8"))
        found = pd.DataFrame(about["rows"], columns=about["columns"]) if "rows" in about else None
    if about is None or found is None:
        raise UsageError(f"{str(path)!r} was not written by save_frame; read it with pandas.")
    return _restored(found, about)


def _restored(found: Any, about: dict[str, Any]) -> Any:
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


_TEXTUAL = {"object", "str", "string"}


def _moments(column: Any, kind: str) -> Any:
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


def _kernels(store: Store) -> Iterator[Row]:
    for row in listing(store, 0.0).rows:
        name, _, version = row.label.partition("@")
        yield {
            "id": row.id,
            "name": name,
            "version": int(version),
            "cell": row.cell,
            "created": row.created,
            "launches": row.launches,
            "last": row.last_launch,
            "config": row.config,
            "best_ms": row.best_ms,
            "device": row.where,
            "tags": ", ".join(row.tags),
        }


def _launches(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.launches():
        launch = row.launch
        yield {
            "id": row.id,
            "kernel": labels[row.version_id],
            "by": launch.by,
            "where": launch.where,
            "device": launch.device,
            "target": launch.target,
            "grid": json.dumps(launch.grid),
            "arguments": json.dumps({a.name: _argument(a) for a in launch.arguments}, default=str),
            "options": json.dumps(dict(launch.options), sort_keys=True),
            "config": launch.config,
            "seconds": row.seconds,
            "count": row.count,
            "created": row.created,
            "last": row.last,
        }


def _argument(argument: Argument) -> object:
    if argument.kind == "tensor":
        return {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
    return [_argument(member) for member in argument.members] or argument.value


def _measurements(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.measurements():
        made = row.measurement
        details = {name: value if _is_flat(value) else json.dumps(value) for name, value in made.details.items()}
        yield {
            "id": row.id,
            "kernel": labels[row.version_id],
            "key": made.key,
            "device": made.device,
            "status": made.status,
            "time_ms": made.time_ms,
            "created": row.created,
            **dict(made.config),
            **{name: value for name, value in details.items() if name not in made.config},
        }


def _is_flat(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


_ROWS: dict[str, Callable[[Store], Iterator[Row]]] = {
    "kernels": _kernels,
    "launches": _launches,
    "measurements": _measurements,
}
_COLUMNS = {
    "kernels": ["id", "name", "version", "cell", "created", "launches", "last", "config", "best_ms", "device", "tags"],
    "launches": ["id", "kernel", "by", "where", "grid", "arguments", "options", "seconds", "count", "created", "last"],
    "measurements": ["id", "kernel", "key", "device", "status", "time_ms", "created"],
}
