"""The pictures of the documentation: the drawing of a terminal's colours, and what a picture must not contain."""

from __future__ import annotations

import getpass
import socket
from xml.etree import ElementTree

import pytest
from pictures import shots
from pictures.terminal_svg import GROUND, PALETTE, TEXT, Ink, Piece, drawn, numbered, pieces, width

_SVG = "{http://www.w3.org/2000/svg}"


def inks(screen: str) -> list[tuple[str, Ink]]:
    return [(piece.text, piece.ink) for line in pieces(screen) for piece in line]


@pytest.mark.parametrize(
    ("sequence", "ink"),
    [
        ("31", Ink(PALETTE[1])),
        ("94", Ink(PALETTE[12])),
        ("38;5;196", Ink("#ff0000")),
        ("38;5;232", Ink("#080808")),
        ("38;2;1;2;255", Ink("#0102ff")),
        ("41", Ink(None, PALETTE[1])),
        ("107", Ink(None, PALETTE[15])),
        ("48;5;3;1", Ink(None, PALETTE[3], bold=True)),
        ("1;2;4;7", Ink(bold=True, dim=True, underline=True, reverse=True)),
        ("31;42;1;4;7;22;24;27;39;49", Ink()),
        ("31;0", Ink()),
        ("31;", Ink()),
        ("38;9;31", Ink(PALETTE[1])),
    ],
)
def test_a_sequence_of_colours_gives_an_ink(sequence: str, ink: Ink) -> None:
    assert inks(f"\x1b[{sequence}mx") == [("x", ink)]


def test_a_colour_lasts_over_the_end_of_a_line_and_blanks_without_a_ground_are_cut() -> None:
    red = Ink(PALETTE[1])
    assert pieces("\x1b[31ma  \nb \x1b[7m  \x1b[0m  \n") == [
        [Piece("a", red)],
        [Piece("b ", red), Piece("  ", red._replace(reverse=True))],
    ]


def test_other_escape_sequences_are_dropped() -> None:
    assert inks("\x1b]8;;http://a\x1b\\x\x1b]8;;\x07\x1b[2Ky\x0e\x0f\x1b(Bz") == [("xyz", Ink())]


def test_reversed_colours_are_exchanged() -> None:
    assert Ink(reverse=True).shown == (GROUND, TEXT)
    assert Ink("#111111", "#222222", reverse=True).shown == ("#222222", "#111111")
    assert Ink("#111111").shown == ("#111111", None)


def test_a_picture_has_the_text_of_each_line_and_a_ground_below_reversed_text() -> None:
    svg = ElementTree.fromstring(drawn("\x1b[1ma <b>\x1b[0m\n\n  \x1b[31m! c\x1b[39m  \x1b[7md\x1b[0m\n", 20))
    assert ["".join(each.itertext()) for each in svg.iter(f"{_SVG}text")] == ["a <b>", "", "  ! c  d"]
    _, ground = svg.iter(f"{_SVG}rect")
    last = [*svg.iter(f"{_SVG}tspan")][-1]
    assert (ground.get("x"), ground.get("fill"), last.get("x"), last.get("fill")) == (
        last.get("x"),
        TEXT,
        ground.get("x"),
        GROUND,
    )
    assert svg.get("width") == "185"


def test_a_wide_character_takes_two_cells() -> None:
    assert (width("a▁"), width("模型"), width("e\u0301"), numbered(15)) == (2, 4, 1, PALETTE[15])


@pytest.mark.parametrize("text", [socket.gethostname(), f"of {getpass.getuser()}:", "see /home/x/y", "x=/tmp/a.brick"])
def test_a_name_of_this_machine_in_a_picture_is_found(text: str) -> None:
    assert shots.leaks(text)


def test_the_text_of_a_screen_has_no_name_of_this_machine() -> None:
    assert shots.leaks("demo/1 slow, 94.6 ms/s, 3/4 workers, layers.2.mlp.down, x 1/s /") == []


def test_a_screen_must_have_a_line_for_each_pattern() -> None:
    so = shots.satisfied(["^a", "b$"])
    assert (bool(so("x\na 1\nthe b")), bool(so("a 1")), bool(so("x a\nb"))) == (True, False, False)
