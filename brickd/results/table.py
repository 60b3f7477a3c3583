"""A table: the rows of a document for programs, as numpy, pandas, Arrow and HTML.

Owns: the conversions. Must not know: individual results, where documents come from. Invariants: A table computes no
figure. numpy, pandas and pyarrow are imported only by the method that needs them. An empty table has the same columns
and types as other tables.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from brickd.base.units import plural
from brickd.errors import PackageMissing, WrongQuestion
from brickd.results import html
from brickd.results.schema import Schema, TableColumn

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    import pandas
    import pyarrow

Row = Mapping[str, Any]


class Table(Sequence[Row]):
    """The rows of one answer. A table is a sequence, and its elements are the rows of the JSON document.

    Attributes:
        name: the name of the result, such as `bricks`.
        columns: the names of the columns. A name is the path of a value in a row: `lanes.used`.
        document: the whole document, as `--json` prints it.
        words: the notes that the command would print on stderr.

    >>> from brickd.results.schema import BRICKS
    >>> table = Table(BRICKS, {"source": "daemon", "bricks": []})
    >>> table, len(table), table.columns[:3], table.to_numpy()["self_ns"].tolist()
    (<brickd table bricks: 0 rows from daemon>, 0, ('name', 'category', 'count'), [])
    """

    def __init__(self, schema: Schema, document: Mapping[str, Any], words: tuple[str, ...] = ()) -> None:
        """Make the table of a document; raise KeyError if a row does not have a column."""
        self.name, self.document, self.words = schema.name, document, words
        self.columns = tuple(column.name for column in schema.columns)
        self._schema, self._rows = schema, document[schema.rows]
        for row in self._rows[:1]:  # all rows have the same keys
            for column in schema.columns:
                column.reader()(row)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        rows: Row | Sequence[Row] = self._rows[index]
        return rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<brickd table {self._title}>"

    def _repr_html_(self) -> str:
        columns = [self._named(name) for name in self._schema.shown]
        return html.table(self._title, columns, self._rows, self.words)

    @property
    def _title(self) -> str:
        return f"{self.name}: {plural(len(self), 'row')} from {self.document.get('source', 'recording')}"

    def column(self, name: str) -> list[Any]:
        """Return the values of a column as they are in JSON: null is None, a time is text.

        Raises:
            brickd.errors.WrongQuestion: the table has no such column.
        """
        return self._column(self._named(name))

    def to_numpy(self) -> numpy.typing.NDArray[numpy.void]:
        """Return a structured array. Null is NaN for a number, NaT for a time, and None for anything else."""
        import numpy

        columns = self._schema.columns
        array = numpy.zeros(len(self), [(column.name, column.kind.numpy) for column in columns])
        for column in columns:
            unknown = column.kind.unknown
            array[column.name] = [unknown if value is None else value for value in self._values(column)]
        return array

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame. A column of whole numbers that may be null is an `Int64`.

        Raises:
            brickd.errors.PackageMissing: pandas is not installed.
        """
        pandas = _package("pandas")
        return pandas.DataFrame(
            {
                column.name: pandas.Series(self._values(column), dtype=column.kind.pandas)
                for column in self._schema.columns
            }
        )

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table. Lists and objects are encoded as JSON text, except for lists of texts.

        Raises:
            brickd.errors.PackageMissing: pyarrow is not installed.
        """
        pyarrow = _package("pyarrow")
        types = {
            "string": pyarrow.string(),
            "int64": pyarrow.int64(),
            "float64": pyarrow.float64(),
            "bool": pyarrow.bool_(),
            "timestamp": pyarrow.timestamp("ms", "UTC"),
            "list": pyarrow.list_(pyarrow.string()),
        }
        columns = {}
        for column in self._schema.columns:
            portable = column.kind.portable
            values = [None if value is None else portable(value) for value in self._values(column)]
            columns[column.name] = pyarrow.array(values, types[column.kind.arrow])
        return pyarrow.table(columns)

    def _named(self, name: str) -> TableColumn:
        for column in self._schema.columns:
            if column.name == name:
                return column
        raise WrongQuestion(f"no column {name!r} in {self.name}, expected one of {', '.join(self.columns)}")

    def _column(self, column: TableColumn) -> list[Any]:
        return [*map(column.reader(), self._rows)]

    def _values(self, column: TableColumn) -> list[Any]:
        """Return the values of a column for an array; null is None."""
        make = column.kind.value
        return [None if value is None else make(value) for value in self._column(column)]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PackageMissing(f"{name} cannot be imported ({error}): pip install {name}") from error
