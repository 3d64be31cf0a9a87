"""Rows of Parquet files, and of the Arrow files that Hugging Face datasets save on disk, as documents."""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from argosy.data.corpus import Document, Rejected
from argosy.data.listing import SourceFile, arrow
from argosy.errors import InputError

ROWS = 1024
"""Rows held in memory at once."""


def parquet_rows(file: SourceFile, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file, only the wanted columns. Raises InputError: damaged, or without these columns."""
    pyarrow = arrow(file.name)
    import pyarrow.parquet as parquet

    with file.open() as stream:
        try:
            table = parquet.ParquetFile(stream)
            _check_columns(table.schema_arrow.names, columns, file)
            for batch in table.iter_batches(batch_size=ROWS, columns=columns):
                yield from batch.to_pylist()
        except pyarrow.ArrowException as error:
            raise _damaged(file, error) from error


def arrow_rows(file: SourceFile, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of an Arrow stream or file, only the wanted columns. Raises InputError as :func:`parquet_rows`."""
    pyarrow = arrow(file.name)
    with file.open() as stream:
        try:
            for batch in _batches(pyarrow, stream):
                _check_columns(batch.schema.names, columns, file)
                wanted = batch.select(columns)
                for first in range(0, wanted.num_rows, ROWS):
                    yield from wanted.slice(first, ROWS).to_pylist()
        except pyarrow.ArrowException as error:
            raise _damaged(file, error) from error


def documents_of(
    rows: Iterator[dict[str, Any]], file: SourceFile, text_field: str, id_field: str | None
) -> Iterator[Document | Rejected]:
    """Rows with text as documents; a row whose text is missing or no text is rejected."""
    for number, row in enumerate(rows):
        yield from document_of(row, f"{file.name}:{number + 1}", text_field, id_field)


def document_of(
    row: dict[str, Any], where: str, text_field: str, id_field: str | None
) -> Iterator[Document | Rejected]:
    """The document of a record, or why it is none; nothing for an empty text."""
    for field in (text_field, *([id_field] if id_field else [])):
        if field not in row:
            yield Rejected(where, f"no field {field!r}; it has {', '.join(row) or 'none'}", _beginning(row))
            return
    text = row[text_field]
    if not isinstance(text, str):
        yield Rejected(where, f"field {text_field!r} is no string", _beginning(row))
        return
    name = where if id_field is None else str(row[id_field])
    try:
        key = text.encode()
    except UnicodeEncodeError:
        yield Rejected(where, "half of a surrogate pair", _beginning(row))
        return
    if text:
        yield Document(name, text, key)


def saved_dataset(files: list[SourceFile]) -> list[SourceFile]:
    """Of a folder that Hugging Face's ``save_to_disk`` made, the files with its rows in order; else all files.

    Raises:
        InputError: it holds several splits and none was chosen, or a file is missing.
    """
    by_name = {file.name: file for file in files}
    if "dataset_dict.json" in by_name:
        splits = ", ".join(sorted({PurePosixPath(name).parts[0] for name in by_name if "/" in name}))
        where = str(PurePosixPath(by_name["dataset_dict.json"].path).parent)
        raise InputError(f"holds several splits ({splits})", where=where, do="give the folder of one of them")
    if "state.json" not in by_name:
        return files
    state = by_name["state.json"]
    with state.open() as stream:
        try:
            wanted = [entry["filename"] for entry in json.load(stream)["_data_files"]]
        except (ValueError, KeyError, TypeError):
            return files  # somebody's own state.json
    for name in wanted:
        if name not in by_name:
            raise InputError(f"the data set lacks {name}", where=state.path, do="copy the whole folder")
    return [by_name[name] for name in wanted]


def _batches(pyarrow: Any, stream: BinaryIO) -> Iterator[Any]:
    """Record batches of either form of Arrow: a file begins with its name."""
    magic = stream.read(6)
    stream.seek(0)
    if magic == b"ARROW1":
        reader = pyarrow.ipc.open_file(stream)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from pyarrow.ipc.open_stream(stream)


def _check_columns(have: list[str], wanted: list[str], file: SourceFile) -> None:
    for column in wanted:
        if column not in have:
            raise InputError(
                f"has no column {column!r}; it has {', '.join(have)}",
                where=file.path,
                do="name the column with --text-field",
            )


def _damaged(file: SourceFile, error: Exception) -> InputError:
    return InputError(f"is damaged ({str(error).splitlines()[0]})", where=file.path, do="copy the file again")


def _beginning(row: dict[str, Any]) -> bytes:
    return str(row)[:200].encode("utf-8", errors="replace")
