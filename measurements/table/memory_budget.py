"""How many bytes a file may become in memory, so that a small one cannot take the machine.

Text takes about four times its size as a table. Of half of the memory a fourth may be unpacked
from one file; and of one that says nothing, no more than `_HIGHEST_RATIO` times its own size. A
table of which every row brings a column of its own grows with the square of its text.
"""

import gzip
import io
import os
from typing import IO, Any

from measurements.errors import MeasurementError

_TIMES_ITS_SIZE, _PIECE = 4, 1 << 24
# No compression of real tables and logs comes near it; less than the second number is no harm.
_HIGHEST_RATIO, _HARMLESS = 200, 256 << 20
# The same for the cells of a table, most of them empty, by the size of its text.
_HIGHEST_TABLE_RATIO, _HARMLESS_TABLE = 64, 64 << 20

_given: list[int] = []


def set_budget(size: float | None) -> None:
    """Set the memory (bytes) that reading one file may take; None is half of the machine's."""
    _given[:] = [] if size is None else [int(size)]


def most_bytes(packed: int | None = None) -> int:
    """Bytes that a file may hold, or unpack to where it is ``packed`` bytes long."""
    if _given:
        return _given[0] // _TIMES_ITS_SIZE
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // _TIMES_ITS_SIZE
    return most if packed is None else min(most, max(_HARMLESS, _HIGHEST_RATIO * packed))


def check_size(size: int, most: int, source: str) -> None:
    """Raise `MeasurementError` where a file is larger than the budget allows."""
    if size > most:
        raise MeasurementError(
            f"{source}: holds more than {most / 1e6:.0f} MB, the budget for this file: split it, "
            f"or give more with ppw --max-memory ({_TIMES_ITS_SIZE} times what it holds)"
        )


def check_table(rows: int, columns: int, size: int, source: str) -> None:
    """Raise `MeasurementError` where a text of so many bytes makes a table beyond the budget."""
    most = most_bytes()
    if not _given:
        most = min(most, max(_HARMLESS_TABLE, _HIGHEST_TABLE_RATIO * size))
    check_size(8 * rows * columns, most, source)


def read_whole(stream: IO[bytes] | gzip.GzipFile, source: str, packed: int | None = None) -> bytes:
    """Read a stream within the budget; ``packed`` is the length of the file it is unpacked from."""
    parts, size, most = [], 0, most_bytes(packed)
    while part := stream.read(_PIECE):
        size += len(part)
        check_size(size, most, source)
        parts.append(part)
    return b"".join(parts)


def unpack_gzip(content: bytes, source: str) -> bytes:
    """Unpack a gzip file within the budget."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        return read_whole(stream, source, len(content))


def check_parquet(content: bytes, source: str) -> None:
    """Raise `MeasurementError` where the values of a Parquet file exceed the budget."""
    from pyarrow import parquet

    most = most_bytes(len(content))
    with parquet.ParquetFile(io.BytesIO(content)) as file:
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        check_size(sum(8 * chunk.num_values for chunk in chunks), most, source)
        texts = [chunk for chunk in chunks if chunk.physical_type.endswith("BYTE_ARRAY")]
        # One text may stand in all rows: only where that would be too much are they measured.
        if sum(t.num_values * t.total_uncompressed_size for t in texts) > most:
            names = sorted({text.path_in_schema for text in texts})
            check_size(_bytes_of_texts(content, names), most, source)


def _bytes_of_texts(content: bytes, names: list[str]) -> int:
    """Sum the lengths of the texts of columns, each different one read once."""
    import pyarrow as pa
    from pyarrow import compute, parquet

    table = parquet.read_table(io.BytesIO(content), columns=names, read_dictionary=names)
    total = 0
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        array: Any = chunk
        if isinstance(chunk, pa.DictionaryArray):
            array = compute.binary_length(chunk.dictionary).take(chunk.indices)
            total += compute.sum(array.cast("int64")).as_py() or 0
        else:
            total += array.nbytes
    return total
