"""Load the rows of a dataset as plain dicts, from a local file or folder or from the hub."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from motet.core.row_values import decoded, kept
from motet.data.split import Split, parse_split
from motet.errors import ConfigError
from motet.safety.reading import ROWS, check_regular, read_bytes
from motet.user_code.libraries import need
from motet.user_code.objects import described, is_object
from motet.user_code.objects import found as object_of
from motet.user_code.plugins import look_at, nearest

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Loaded:
    """The rows of a dataset, and warnings about them."""

    rows: list[Row]
    warnings: tuple[str, ...] = ()


def load_rows(
    path: Path | str | None = None,
    name: str | None = None,
    split: str = "train",
    subset: str | None = None,
) -> Loaded:
    """Return the rows that `split` selects, from the local `path` or the dataset `name`.

    `path` may also be a reference to rows of this process (`motet.user_code.objects`).

    The values are those of `motet.core.row_values`, whatever the source. A name that exists as a
    path is a path. `subset` is the hub's configuration, for datasets that
    have several. A single file is one split, whatever the name in `split`, so only the slice of
    `split` matters. In a folder, the name of the split selects the files. If a dataset lacks the
    split and has only one, that one is used, with a warning.

    Raises ConfigError if the data is missing, unreadable or empty, or if a row has a value that no
    record can hold.
    """
    if (path is None) == (name is None):
        raise ConfigError(
            f"got path {path} and name {name}; expected exactly one: a local path, or the name of "
            "a dataset on the hub"
        )
    wanted = parse_split(split)
    local = Path(path or str(name))
    if is_object(path):
        kept, source = Loaded(object_of(str(path))), described(str(path))
        return _selected(kept, wanted, split, source)
    if path is not None or look_at(local) != "nothing":
        found, source = _local(local, wanted), str(local)
    else:
        found, source = _hub(str(name), wanted, subset), str(name)
    return _selected(found, wanted, split, source)


def _selected(found: Loaded, wanted: Split, split: str, source: str) -> Loaded:
    chosen = [
        kept(found.rows[index], f"{source}: row {index + 1}")
        for index in wanted.rows(len(found.rows))
    ]
    if not chosen:
        raise ConfigError(
            f"split {split!r} selects none of the {len(found.rows)} rows of {source}; expected at "
            "least one"
        )
    return Loaded(chosen, (*found.warnings, *_beyond(split, wanted, len(found.rows), source)))


def _beyond(split: str, wanted: Split, count: int, source: str) -> tuple[str, ...]:
    """Return a warning if a slice ends behind the last row."""
    if not isinstance(wanted.stop, int) or wanted.stop <= count:
        return ()
    return (f"split {split!r} ends at row {wanted.stop:,}, but {source} has {count:,} rows",)


def check_fields(rows: Sequence[Mapping[str, Any]], required: Iterable[str], where: str) -> None:
    """Check that every row has all `required` fields.

    Raises ConfigError that names the first row without one, the missing field, and the nearest
    field that the row has.
    """
    for field in required:
        for number, row in enumerate(rows, start=1):
            if field not in row:
                there = ", ".join(map(str, row)) or "no fields"
                raise ConfigError(
                    f"{where}: row {number} has no field {field!r}{nearest(field, map(str, row))}; "
                    f"it has {there}"
                )


# -------------------------------------------------------------------------------------------- local


def _local(path: Path, split: Split) -> Loaded:
    if look_at(path) == "nothing":
        raise ConfigError(
            f"{path} does not exist; expected a .jsonl, .json, .csv or .parquet file, or a folder "
            "of them"
        )
    if look_at(path) == "file":
        return Loaded(_read(path))
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved(path, split)
    return Loaded([row for file in _files(path, split) for row in _read(file)])


def _files(folder: Path, split: Split) -> list[Path]:
    """Return the files of the split: `train.jsonl` or `train-00000-of-00002.parquet`.

    If the folder has a single file, it is used for every split.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix in _READERS)
    if not files:
        raise ConfigError(f"{folder} has no data files; expected {', '.join(_READERS)} files")
    named = [
        file
        for file in files
        if file.stem == split.name or file.stem.startswith((f"{split.name}-", f"{split.name}_"))
    ]
    if not named and len(files) > 1:
        there = ", ".join(str(file.relative_to(folder)) for file in files[:8])
        raise ConfigError(
            f"{folder} has no file for split {split.name!r}; it has {there}: rename a file, or "
            "choose another split"
        )
    return named or files


def _read(file: Path) -> list[Row]:
    if file.suffix not in _READERS:
        raise ConfigError(f"{file} ends in {file.suffix!r}; expected {', '.join(_READERS)}")
    return _READERS[file.suffix](file)


def _content(file: Path) -> bytes:
    try:
        return read_bytes(file, ROWS)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}; expected a file of rows"
        ) from error


def _jsonl(file: Path) -> list[Row]:
    lines = enumerate(_content(file).splitlines(), start=1)
    return [_json(line, f"{file}, line {number}") for number, line in lines if line.strip()]


def _json_list(file: Path) -> list[Row]:
    expected = "one JSON value (one object per line belongs in a .jsonl file)"
    rows = _parsed(_content(file), str(file), expected)
    if not isinstance(rows, list):
        raise ConfigError(
            f"{file} holds a single {type(rows).__name__}; expected a list of objects"
        )
    return [_object(row, f"{file}, row {number}") for number, row in enumerate(rows, start=1)]


def _json(text: bytes, where: str) -> Row:
    return _object(_parsed(text, where, "one JSON object"), where)


def _parsed(text: bytes, where: str, expected: str) -> Any:
    try:
        return decoded(json.loads(text, parse_int=_integer))  # as a run keeps rows
    except (ConfigError, ValueError, RecursionError) as error:  # invalid UTF-8 is a ValueError
        raise ConfigError(f"{where} is not JSON: {error}; expected {expected}") from error


def _integer(text: str) -> int:
    """Return a whole number of any length. `int` reads at most 4300 digits."""
    return int(text) if len(text) < 4000 else int(Decimal(text))


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where} is a {type(value).__name__}; expected an object with named fields"
        )
    return value


def _csv(file: Path) -> list[Row]:
    """Read a CSV file. The first line names the fields; every value is a string."""
    try:
        text = io.StringIO(_content(file).decode("utf-8-sig"), newline="")
        with _long_fields():
            lines = list(csv.reader(text, strict=True))
    except (csv.Error, ValueError) as error:  # invalid UTF-8 is a ValueError
        raise ConfigError(f"{file} is not CSV in UTF-8: {error}") from error
    names, *rows = [line for line in lines if line] or [[]]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ConfigError(
                f"{file}, row {number} has {len(row)} values; expected {len(names)}: "
                f"{', '.join(names)}"
            )
    return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let a field of a CSV file be as long as the file. The limit of Python is 128 KiB."""
    before = csv.field_size_limit(ROWS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parquet(file: Path) -> list[Row]:
    need("pyarrow", f"the Parquet file {file}")
    from pyarrow import ArrowException, parquet  # slow to import, and most runs read none

    try:
        check_regular(file, ROWS)
        table = parquet.read_table(file)
    except (ArrowException, OSError) as error:
        raise ConfigError(f"{file} is not a Parquet file: {error}") from error
    with _rows_of(str(file)):
        return list(table.to_pylist())


@contextmanager
def _rows_of(source: str) -> Iterator[None]:
    """Inside, a library makes rows of `source`.

    Raises: ConfigError if Python cannot hold a value, such as a date in the year 20000.
    """
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{source} cannot be read as rows: {error}; expected columns of different names, with "
            "values that Python can hold: write a column as strings, or drop it"
        ) from error


def _of_dataset(dataset: Any, source: str) -> list[Row]:
    """Return the rows of a `datasets.Dataset` as they are stored: images as bytes, for example."""
    with _rows_of(source):
        return list(dataset.with_format(None).to_list())


_READERS = {".jsonl": _jsonl, ".json": _json_list, ".csv": _csv, ".parquet": _parquet}


# ---------------------------------------------------------------------------------------------- hub


def _saved(folder: Path, split: Split) -> Loaded:
    """Read what `datasets.save_to_disk` wrote: one split, or several by name."""
    need("datasets", f"the saved dataset {folder}")
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    if isinstance(loaded, datasets.Dataset):
        return Loaded(_of_dataset(loaded, str(folder)))
    chosen, warnings = _split_of(str(folder), split.name, list(loaded))
    return Loaded(_of_dataset(loaded[chosen], str(folder)), warnings)


def _hub(name: str, split: Split, subset: str | None) -> Loaded:
    need("datasets", f"dataset {name!r}, which is no local path,")
    import datasets  # takes a second to import

    errors = (datasets.exceptions.DatasetsError, OSError, ValueError)
    try:
        rows = datasets.load_dataset(name, subset, split=split.name)
        return Loaded(list(rows.to_list()))
    except errors as error:
        asked = f"dataset {name!r}" + (f", subset {subset!r}" if subset else "")
        if isinstance(error, ValueError):  # datasets raises it for an unknown split
            try:
                splits = datasets.get_dataset_split_names(name, subset)
            except errors:
                splits = []
            if splits and split.name not in splits:
                chosen, warnings = _split_of(asked, split.name, splits)
                rows = datasets.load_dataset(name, subset, split=chosen)
                return Loaded(list(rows.to_list()), warnings)
        raise ConfigError(
            f"{asked}, split {split.name!r} cannot be loaded: {error}; expected a dataset on the "
            "hub, or an existing local path"
        ) from error


def _split_of(source: str, wanted: str, splits: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the split to read: the one that is wanted, or with a warning the only one.

    Raises: ConfigError if there are several others.
    """
    if wanted in splits:
        return wanted, ()
    if len(splits) == 1:
        return splits[0], (
            f"{source} has no split {wanted!r}: its only split, {splits[0]!r}, is read",
        )
    raise ConfigError(
        f"{source} has no split {wanted!r}{nearest(wanted, splits)}; it has {', '.join(splits)}"
    )
