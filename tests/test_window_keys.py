"""`by=` means the same in all joins: a tuple is one key with several names, a list several keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import matwin
from matwin.tools.window_question import _keys as said_again

DOORS = pa.table({"t": [1, 2, 3], "badge": ["x", "y", "x"], "floor": [1, 1, 2]})
LIFTS = pa.table({"t": [1, 2, 3], "card": ["x", "x", "y"], "level": [1, 2, 1]})
STREAMS = {"door": DOORS, "lift": LIFTS}
RENAMED = {"door": DOORS, "lift": LIFTS.rename_columns(["t", "badge", "floor"])}


def pairs(streams: dict[str, pa.Table], by: Any) -> list[tuple[int, int]]:
    found = matwin.window_join(streams, time="t", windows=5, by=by).to_arrow()
    times = [found[name].to_pylist() for name in ("door_t", "lift_t")]
    return sorted(zip(*times, strict=True))


def two_sided(left: pa.Table, right: pa.Table, by: Any) -> list[tuple[int, int]]:
    found = matwin.epsilon_join(left, right, on={"t": 5}, by=by).to_arrow()
    return sorted(zip(found["t_left"].to_pylist(), found["t_right"].to_pylist(), strict=True))


def test_a_tuple_is_one_key() -> None:
    expected = [(1, 1), (1, 2), (2, 3), (3, 1), (3, 2)]
    assert pairs(STREAMS, ("badge", "card")) == expected
    assert pairs(STREAMS, [("badge", "card")]) == expected
    assert pairs(RENAMED, "badge") == expected
    assert two_sided(DOORS, LIFTS, ("badge", "card")) == expected


def test_a_list_is_several_keys() -> None:
    expected = [(1, 1), (2, 3), (3, 2)]
    assert pairs(STREAMS, [("badge", "card"), ("floor", "level")]) == expected
    assert pairs(RENAMED, ["badge", "floor"]) == expected
    assert pairs(RENAMED, ["badge", ("floor", "floor")]) == expected
    assert pairs(STREAMS, {"door": ["badge", "floor"], "lift": ["card", "level"]}) == expected
    by = [("badge", "card"), ("floor", "level")]
    assert two_sided(DOORS, LIFTS, by) == expected


@pytest.mark.parametrize("by", [("badge",), ("badge", "card", "card"), [("badge", "card"), ("t",)]])
def test_a_tuple_of_another_length_is_an_error(by: Any) -> None:
    with pytest.raises(matwin.InputError, match="streams"):
        pairs(STREAMS, by)
    with pytest.raises(matwin.InputError, match="streams"):
        said_again(("door", "lift"), (DOORS.schema, LIFTS.schema), by)
    with pytest.raises(matwin.InputError, match="pair"):
        two_sided(DOORS, LIFTS, by)


def test_verification_reads_it_alike() -> None:
    schemas = DOORS.schema, LIFTS.schema
    names = ("door", "lift")
    assert said_again(names, schemas, ("badge", "card")) == said_again(
        names, schemas, {"door": "badge", "lift": "card"}
    )
