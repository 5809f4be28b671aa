"""Each way of being wrong is named for what it is."""

import hashlib

import pytest

from harness import likely
from scenarios.store.patterns import cause_of, pattern, swapped


def block(name, size=8192):
    """Bytes that differ from block to block and along a block."""
    data = b"".join(hashlib.sha256(f"{name}:{n}".encode()).digest() for n in range(-(-size // 32)))
    return data[:size]


A, B, OLD, NEXT = (block(name) for name in ("a", "b", "old", "next"))
POISON = b"\xa5" * 8192
KNOWN = {"block 1": B, "the poison": POISON, "the earlier version": OLD, "the next use": NEXT}


def flipped(data, at, bits):
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


CASES = {
    "bit": (flipped(A, 100, 8), "bit_flip", "", 0, "one bit differs: bit 3 of byte 100"),
    "zeros": (bytes(8192), "whole", "zeros", 0, "all 8192 bytes are zeros"),
    "another": (B, "whole", "block 1", 0, "all 8192 bytes are those of block 1"),
    "torn": (
        A[:4096] + OLD[4096:], "tail", "the earlier version", 0,
        "right up to byte 4096 (1 x 4096), then those of the earlier version",
    ),
    "short": (
        A[:1536] + POISON[1536:], "tail", "the poison", 0,
        "right up to byte 1536 (3 x 512), then those of the poison",
    ),
    "cut anywhere": (A[:77] + bytes(8115), "tail", "zeros", 0, "right up to byte 77, then zeros"),
    "head": (
        NEXT[:512] + A[512:], "head", "the next use", 0,
        "the first 512 bytes (1 x 512) are those of the next use, the rest is right",
    ),
    "hole": (A[:512] + bytes(512) + A[1024:], "middle", "zeros", 0, "bytes 512..1024 are zeros"),
    "pieces": (
        A[:512] + NEXT[512:1024] + A[1024:2048] + NEXT[2048:2560] + A[2560:], "pieces",
        "the next use", 0, "pieces within 512..2560 are those of the next use",
    ),
    "late": (POISON[:4] + A[:-4], "shifted", "its own", 4, "its own bytes come 4 bytes too late"),
    "early": (A[512:] + bytes(512), "shifted", "its own", -512, "come 512 bytes too early"),
    "late from the middle": (
        A[:4096] + A[4000:8096], "shifted", "its own", 96, "96 bytes too late from byte 4096",
    ),
    "elsewhere": (
        B[512:] + A[:512], "elsewhere", "block 1", -512, "the bytes of block 1, 512 bytes too early",
    ),
    "half": (
        A[4096:] + bytes(4096), "shifted", "its own", -4096,
        "its own bytes come 4096 bytes too early (50% of the wrong bytes)",
    ),
    "best": (
        A[512:2560] + B[:6144], "elsewhere", "block 1", 2048,
        "the bytes of block 1, 2048 bytes too late (75% of the wrong bytes)",
    ),
    "two bits": (flipped(A, 100, 9), "unknown", "", 0, "1 of 8192 bytes differ, within 100..101"),
    "unknown": (block("x"), "unknown", "", 0, "bytes differ, within 0..8192"),
    "cut": (A[:100], "length", "", 0, "100 bytes instead of 8192, right up to byte 100"),
    "cut and wrong": (B[:100], "length", "", 0, "before that, all 100 bytes are those of block 1"),
    "too long": (A + b"x", "length", "", 0, "8193 bytes instead of 8192"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_pattern_is_named(name):
    got, kind, source, offset, text = CASES[name]
    found = pattern(A, got, KNOWN)
    assert (found.kind, found.source, found.offset) == (kind, source, offset)
    assert text in found.text
    assert "\n" not in found.text


def test_the_right_bytes_have_no_pattern():
    assert pattern(A, A, KNOWN) is None
    assert pattern(b"", b"") is None


def test_the_range_of_wrong_bytes():
    found = pattern(A, A[:512] + bytes(512) + A[1024:])
    assert (found.first, found.end) == (512, 1024)
    assert found.wrong == sum(byte != 0 for byte in A[512:1024])


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 33])
def test_tiny_blocks_do_not_trip_it(size):
    right = block("a", size)
    for got in (bytes(size), right[1:] + b"\0", block("b", size), right[:-1], right + b"y"):
        found = pattern(right, got, {"block 1": block("b", size), "short": b"s"})
        assert found is None if got == right else found.wrong > 0


def test_known_bytes_shorter_than_the_block():
    assert pattern(A, B[:512] + A[512:], {"block 1": B[:512]}).kind == "head"
    assert pattern(A, B, {"block 1": B[:512]}).kind == "unknown"


def test_blocks_that_hold_each_others_data():
    a, b, c = block("a", 64), block("b", 64), block("c", 64)
    assert swapped([a, b, c], [c, b, a]) == [(0, 2)]
    assert swapped([a, b, c], [b, b, c]) == []
    assert swapped([a, b, c], [a, b, c]) == []
    assert swapped([a, a, b], [a, a, b]) == []


CAUSES = {
    "bit": "bit_flipped", "zeros": "partly_written", "another": "other_block", "torn": "partly_written",
    "short": "partly_written", "head": "source_reused", "pieces": "source_reused", "late": "misaligned",
    "early": "wrong_offset", "late from the middle": "misaligned", "elsewhere": "wrong_offset",
    "cut": "partly_written", "unknown": "", "poison": "not_filled",
}


@pytest.mark.parametrize("name", CAUSES)
def test_what_a_pattern_speaks_for_is_in_the_table(name):
    got = POISON if name == "poison" else CASES[name][0]
    row = cause_of(pattern(A, got, KNOWN), poison="the poison", reused="the next use")
    assert row == CAUSES[name]
    assert all(likely("store/silent_corruption", row))
