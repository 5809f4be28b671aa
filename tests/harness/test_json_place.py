"""The line of a field in a JSON text."""

from __future__ import annotations

import json

import pytest

from harness.json_place import line_of, located

TEXT = """\
{
  "a": {"b": [1,
    {"c": "}],"},
    []
  ]},
  "d.e": null,
  "f": -1.5e3
}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("$", 1),
        ("$.a", 2),
        ("$.a.b", 2),
        ("$.a.b[0]", 2),
        ("$.a.b[1]", 3),
        ("$.a.b[1].c", 3),
        ("$.a.b[2]", 4),
        ("$.f", 7),
        # What is not there: the nearest above it.
        ("$.a.b[9].x", 2),
        ("$.a.b[1].x", 3),
        ("$.nope", 1),
        ("$.f.g[3]", 7),
    ],
)
def test_the_line_of_a_field(path, line):
    json.loads(TEXT)
    assert line_of(TEXT, path) == line


def test_a_text_that_is_no_json_gives_the_first_line():
    assert line_of('{"a": [', "$.a[0].b") == 1
    assert line_of("", "$.a") == 1


def test_paths_of_nested_decoders_are_joined():
    message = "$.params: Expected `int`, got `str` - at `$.b[1].c`"
    assert located(TEXT, "s.json", message, "$.a").startswith("s.json:2: $.a.params.b[1].c: Exp")
    assert located(TEXT, "s", "Object contains unknown field `c` - at `$.b[1]`", "$.a") == (
        "s:3: $.a.b[1].c: Object contains unknown field `c`"
    )
