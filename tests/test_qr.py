"""The QR code of the link: what a camera would see, read back by an independent decoder."""
from __future__ import annotations

import pytest
import zxingcpp
from hypothesis import example, given, settings
from hypothesis import strategies as st

import a4p

SHADES = {"█": (255, 255), "▀": (255, 0), "▄": (0, 255), " ": (0, 0)}
SCALE = 4  # pixels for a module
MOST = 134  # bytes that version 6 holds at level L


def picture(rows: list[bytes]) -> memoryview:
    """Return the pixels of these rows of modules, as a grey image."""
    pixels = [bytes(shade for shade in row for _ in range(SCALE))
              for row in rows for _ in range(SCALE)]
    return memoryview(b"".join(pixels)).cast("B", (len(pixels), len(pixels[0])))


def photo(lines: list[str]) -> memoryview:
    """Return the pixels of a dark terminal that shows these lines."""
    return picture([bytes(SHADES[char][half] for char in line) for line in lines for half in (0, 1)])


def read(lines: list[str]) -> list[str]:
    return [code.text for code in zxingcpp.read_barcodes(photo(lines))]


def link(length: int) -> str:
    return ("http://192.0.2.7:8080/a4p-" + "abcdefghijklmnopqrstuvwxyz234567" * 9)[:length]


def decoded(data: bytes) -> list[bytes]:
    """Return what the decoder finds in the code of `data`."""
    rows = [b"\xff" * 4 + bytes(255 - 255 * dark for dark in row) + b"\xff" * 4
            for row in a4p.qr_matrix(data)]
    quiet = [b"\xff" * len(rows[0])] * 4
    return [code.bytes for code in zxingcpp.read_barcodes(picture(quiet + rows + quiet))]


def test_a_link_of_any_length_is_read_back() -> None:
    for length in range(1, MOST + 1):
        assert read(a4p.qr_lines(link(length))) == [link(length)]


@pytest.mark.parametrize(("version", "most"), list(enumerate(
    (17, 32, 53, 78, 106, 134), 1)))
def test_each_version_is_filled_before_the_next_is_used(version: int, most: int) -> None:
    full = a4p.qr_matrix(link(most).encode())
    assert len(full) == 17 + 4 * version
    assert all(len(row) == len(full) for row in full)
    assert read(a4p.qr_lines(link(most))) == [link(most)]
    if version < 6:
        assert len(a4p.qr_matrix(link(most + 1).encode())) == len(full) + 4


@pytest.mark.parametrize("text", ["问题在手机上", "Grüße an die Küche", "café 🍵", "\x00\x7f", "1"])
def test_any_text_is_read_back_as_utf8(text: str) -> None:
    codes = zxingcpp.read_barcodes(photo(a4p.qr_lines(text)))
    assert [code.bytes for code in codes] == [text.encode()]


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=1, max_size=MOST))
@example(bytes(range(MOST)))
@example(bytes(range(256 - MOST, 256)))
def test_any_bytes_are_read_back(data: bytes) -> None:
    """One mask serves for all: a reader takes whichever the code names."""
    assert decoded(data) == [data]


@pytest.mark.parametrize("value", [0x00, 0xFF, 0xAA, 0x55, 0xEC, 0x66, 0x99])
def test_monotonous_bytes_are_read_back(value: int) -> None:
    """They make the patterns that the choice of a mask would avoid."""
    for length in (1, 17, 32, 53, 78, 106, MOST):
        assert decoded(bytes([value]) * length) == [bytes([value]) * length]


def test_some_damage_is_repaired() -> None:
    """A reflection or a cursor: 3 of the 70 codewords of version 3, level L mends 7."""
    lines = a4p.qr_lines(link(50))
    row, column = len(lines) // 2, len(lines[0]) // 2
    lines[row] = lines[row][:column] + "██████" + lines[row][column + 6:]
    assert read(lines) == [link(50)]


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="135 bytes, at most 134"):
        a4p.qr_matrix(b"x" * (MOST + 1))
    with pytest.raises(ValueError, match="135 bytes"):
        a4p.qr_lines("问" * 45)


def test_a_quiet_zone_of_four_modules_surrounds_the_code() -> None:
    lines = a4p.qr_lines(link(40))
    assert {len(line) for line in lines} == {len(a4p.qr_matrix(link(40).encode())) + 8}
    assert set("".join(lines[:2] + lines[-2:])) == {"█"}
    assert all(line[:4] == line[-4:] == "████" for line in lines)


def test_the_coloured_form_is_white_on_black_and_ends_the_colour() -> None:
    shown = a4p.QR_ANSI.format("█▀▄ ")
    assert shown.startswith("\x1b[38;5;231;48;5;16m█") and shown.endswith(" \x1b[0m")
