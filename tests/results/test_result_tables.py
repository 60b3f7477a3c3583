"""Tables: the values of a document in numpy, pandas, Arrow and HTML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from comparable_workers import MLP, ComparableWorkers, chain
from made_up_workers import HOSTILE, MadeUp

from brickd.analysis.numerics import fingerprint_export
from brickd.base.escape import text as visible
from brickd.errors import BrickdError, PackageMissing, WrongQuestion
from brickd.model.brick_totals import bricks
from brickd.query.queries import By
from brickd.results import fingerprints, html
from brickd.results import schema as schemas
from brickd.results.schema import (
    BRICKS,
    COUNT,
    FLAG,
    MAYBE,
    NUMBER,
    OBJECT,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Schema,
    TableColumn,
)
from brickd.results.table import Table

# A schema with a column of each kind. Below it are a row of values, and a row in which each value is null if its kind
# allows this.
EVERY = Schema(
    "every",
    "rows",
    (
        TableColumn("name", TEXT),
        TableColumn("count", COUNT),
        TableColumn("lanes.used", WHOLE),
        TableColumn("share_percent", NUMBER),
        TableColumn("bounded", FLAG),
        TableColumn("drained", MAYBE),
        TableColumn("since", TIME),
        TableColumn("workers", TEXTS),
        TableColumn("open", OBJECT),
    ),
    ("name", "count", "lanes.used", "share_percent", "bounded", "drained", "since", "workers", "open"),
)
KNOWN: dict[str, Any] = {
    "name": "gemm",
    "count": 2**62,
    "lanes": {"used": 2**53 + 2},
    "share_percent": 0.5,
    "bounded": True,
    "drained": False,
    "since": "2026-11-27T12:45:06.793Z",
    "workers": ["api/0", "api/1"],
    "open": [{"brick": "gemm", "layer": None}],
}
UNKNOWN: dict[str, Any] = dict.fromkeys(KNOWN) | {"count": 0, "bounded": False, "workers": [], "open": []}


def every(*rows: Mapping[str, Any]) -> Table:
    return Table(EVERY, {"source": "daemon", "rows": list(rows)})


def test_a_structured_array_has_the_values_of_the_document() -> None:
    array = every(KNOWN, UNKNOWN).to_numpy()
    assert array["name"].tolist() == ["gemm", None]
    assert array["count"].tolist() == [2**62, 0]
    assert (array["lanes.used"][0], np.isnan(array["lanes.used"][1])) == (2**53 + 2, True)
    assert (array["share_percent"][0], np.isnan(array["share_percent"][1])) == (0.5, True)
    assert array["bounded"].tolist() == [True, False]
    assert array["drained"].tolist() == [False, None]
    assert (array["since"][0], np.isnat(array["since"][1])) == (np.datetime64("2026-11-27T12:45:06.793"), True)
    assert array["workers"].tolist() == [["api/0", "api/1"], []]
    assert array["open"].tolist() == [[{"brick": "gemm", "layer": None}], []]


def test_lists_of_one_length_stay_lists() -> None:
    assert every(KNOWN, KNOWN).to_numpy()["workers"].tolist() == [["api/0", "api/1"]] * 2


def test_the_type_of_an_array_does_not_depend_on_its_values() -> None:
    assert len({str(every(*rows).to_numpy().dtype) for rows in ((), (KNOWN,), (UNKNOWN,), (KNOWN, UNKNOWN))}) == 1


def test_a_count_of_a_damaged_segment_is_at_most_the_largest_number() -> None:
    table = every(KNOWN | {"count": 2**64, "lanes": {"used": 2**63}})
    assert table.to_numpy()["count"].tolist() == [2**63 - 1]
    assert table.column("count") == [2**64]


def test_a_table_is_the_sequence_of_the_rows_of_its_document() -> None:
    table = every(KNOWN, UNKNOWN)
    assert (list(table), table[-1], table[:1], len(table)) == ([KNOWN, UNKNOWN], UNKNOWN, [KNOWN], 2)
    assert table.column("lanes.used") == [2**53 + 2, None]
    assert repr(table) == "<brickd table every: 2 rows from daemon>"


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WrongQuestion, match=r"^no column 'cuont' in every, expected one of name, count, lanes\.used"):
        every().column("cuont")


def test_a_document_without_a_column_is_refused_at_once() -> None:
    with pytest.raises(KeyError, match="bounded"):
        every({key: value for key, value in KNOWN.items() if key != "bounded"})


@pytest.mark.ci
def test_a_data_frame_has_the_values_of_the_document() -> None:
    frame = every(KNOWN, UNKNOWN).to_pandas()
    assert [*frame.columns] == list(every().columns)
    assert frame["count"].tolist() == [2**62, 0]
    assert (frame["lanes.used"][0], frame["lanes.used"].isna().tolist()) == (2**53 + 2, [False, True])
    assert (str(frame["lanes.used"].dtype), str(frame["count"].dtype)) == ("Int64", "int64")
    assert frame["drained"].isna().tolist() == [False, True]
    assert str(frame["since"][0]) == "2026-11-27 12:45:06.793000+00:00"
    assert frame["workers"][0] == ["api/0", "api/1"]
    assert frame.dtypes.tolist() == every().to_pandas().dtypes.tolist()


@pytest.mark.ci
def test_an_arrow_table_has_the_values_of_the_document() -> None:
    arrow = every(KNOWN, UNKNOWN | {"name": "\udcff"}).to_arrow()
    assert arrow.schema == every().to_arrow().schema
    known, unknown = arrow.to_pylist()
    assert known | {"since": str(known["since"])} == {
        "name": "gemm",
        "count": 2**62,
        "lanes.used": 2**53 + 2,
        "share_percent": 0.5,
        "bounded": True,
        "drained": False,
        "since": "2026-11-27 12:45:06.793000+00:00",
        "workers": ["api/0", "api/1"],
        "open": '[{"brick": "gemm", "layer": null}]',
    }
    assert unknown["name"] == "\\udcff", "the value is a file name that is not UTF-8"
    assert [unknown[each] for each in ("lanes.used", "share_percent", "drained", "since")] == [None] * 4


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PackageMissing, match=f"^{package} cannot be imported .*: pip install {package}$") as raised:
        every().to_pandas() if package == "pandas" else every().to_arrow()
    assert isinstance(raised.value, BrickdError)
    assert isinstance(raised.value, ImportError)


# ---- HTML


class Cells(HTMLParser):
    """Collects the texts and the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


ATTACKS = [
    HOSTILE,
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "&lt;b&gt;",
    "\u202egpj.exe",
    "\x00\x1b[31m",
]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_name_is_text_in_html(name: str) -> None:
    page = every(KNOWN | {"name": name, "workers": [name], "open": [{"brick": name}]})._repr_html_()
    cells = Cells(page)
    assert cells.tags == {"table", "caption", "tr", "th", "td"}
    assert cells.attributes == {"style", "title"}
    assert cells.texts.count(visible(name)) == 2
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", page)


def test_a_hostile_note_is_text_in_html() -> None:
    table = Table(EVERY, {"source": "daemon", "rows": []}, ("<b>api/0</b>",))
    assert "<p>&lt;b&gt;api/0&lt;/b&gt;</p>" in table._repr_html_()


def test_html_shows_figures_with_units_and_the_exact_value_as_title() -> None:
    page = every(KNOWN, UNKNOWN)._repr_html_()
    assert '<td style="text-align: right" title="0.5">0.5 %</td>' in page
    assert f'title="{2**62}">4.6E</td>' in page
    assert Cells(page).texts.count("-") == 5, "the page has one mark for each null of the second row"


def test_html_shows_the_first_rows_and_counts_the_others() -> None:
    page = every(*[KNOWN] * (html.ROWS_MAX + 1_200))._repr_html_()
    assert page.count("<tr>") == 1 + html.ROWS_MAX
    assert page.endswith("<p>…1,200 more rows</p>")
    assert "more row" not in every(*[KNOWN] * html.ROWS_MAX)._repr_html_()


# ---- the declared columns


def flattened(value: Any, known: set[str], path: str = "") -> Iterator[str]:
    """Yield the paths of the values in a row; the value of a known column is not divided into its parts."""
    if isinstance(value, dict) and path not in known:
        for key, each in value.items():
            yield from flattened(each, known, f"{path}.{key}" if path else key)
    else:
        yield path


@pytest.mark.parametrize("by", [None, "worker", "service", "layer"])
def test_the_columns_of_bricks_are_the_keys_of_a_brick_and_its_share(by: By | None) -> None:
    made = MadeUp()
    made.begin("gemm", layer=3)
    made.end()
    (brick,) = bricks([made.worker("api/0")], by)
    assert [*brick.document(by), "share_percent"] == [column.name for column in BRICKS.grouped(by).columns]


def test_a_notebook_shows_only_declared_columns() -> None:
    declared = [each for each in vars(schemas).values() if isinstance(each, schemas.Schema)]
    assert len(declared) > 5
    for schema in (*declared, BRICKS.grouped("layer")):
        assert set(schema.shown) <= {column.name for column in schema.columns}
        assert len({column.name for column in schema.columns}) == len(schema.columns)


def test_an_export_gives_the_rows_of_the_wanted_workers_only() -> None:
    world = ComparableWorkers([chain(), chain(MLP)])
    workers = world.survey().workers
    export = {"evicted": 0, **fingerprint_export.document(world.numerics(workers))}
    names = {worker.reading.uuid: worker.name for worker in workers}
    assert len(fingerprints.document(export, names)["fingerprints"]) == 24
    only = fingerprints.document(export, {workers[1].reading.uuid: "api/1"})
    assert (len(only["fingerprints"]), {row["worker"] for row in only["fingerprints"]}) == (12, {"api/1"})
    assert only.keys() == {"evicted", "fingerprints"}
