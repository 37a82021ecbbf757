"""The data of the bestmatch paper's experiments: streams of a text and d numbers in [0, 1].

    uniform          every attribute for itself
    correlated       near the diagonal: a row that is high in one attribute is high in all
    anti-correlated  near the plane across it: high in one, low in another
    normal           around the middle

Rows are in order of the first attribute, y1, which streams of the paper are.  The shapes of the
correlated and anti-correlated rows are those of the skyline paper it takes them from, with widths
chosen here, since neither prints them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

EPSILON = 0.1
Floats = npt.NDArray[np.float64]
Generator = np.random.Generator


def streams(
    distribution: str, rows: int, dimensions: int, *, decimals: int | None = None, seed: int = 0
) -> tuple[pa.Table, pa.Table]:
    """Both sides; `decimals` rounds y1."""
    left, right = (
        _table(
            DISTRIBUTIONS[distribution],
            np.random.default_rng([seed, side]),
            rows,
            dimensions,
            decimals,
        )
        for side in (0, 1)
    )
    return left, right


def tolerances(dimensions: int) -> dict[str, float]:
    """What `on=` gets: the paper's ε for every attribute."""
    return {f"y{at + 1}": EPSILON for at in range(dimensions)}


def _table(
    draw: Callable[[Generator, int, int], Floats],
    generator: Generator,
    rows: int,
    dimensions: int,
    decimals: int | None,
) -> pa.Table:
    values = _inside(draw, generator, rows, dimensions)
    if decimals is not None:
        values[:, 0] = np.round(values[:, 0], decimals)
    values = values[np.argsort(values[:, 0], kind="stable")]
    columns = {f"y{at + 1}": values[:, at] for at in range(dimensions)}
    return pa.table({"data": [f"tuple {row}" for row in range(rows)], **columns})


def _inside(
    draw: Callable[[Generator, int, int], Floats], generator: Generator, rows: int, dimensions: int
) -> Floats:
    """Rows within [0, 1] in every attribute; others are drawn again."""
    found = np.empty((0, dimensions))
    while len(found) < rows:
        more = draw(generator, rows, dimensions)
        found = np.concatenate([found, more[((more >= 0) & (more <= 1)).all(axis=1)]])
    return found[:rows]


def _uniform(generator: Generator, rows: int, dimensions: int) -> Floats:
    return generator.random((rows, dimensions))


def _correlated(generator: Generator, rows: int, dimensions: int) -> Floats:
    along = generator.random((rows, 1))
    return along + generator.normal(0, 0.05, (rows, dimensions))


def _anti_correlated(generator: Generator, rows: int, dimensions: int) -> Floats:
    """Around the middle of the diagonal, and from there far across it."""
    along = generator.normal(0.5, 0.05, (rows, 1))
    across = generator.uniform(-0.5, 0.5, (rows, dimensions))
    values: Floats = along + across - across.mean(axis=1, keepdims=True)
    return values


def _normal(generator: Generator, rows: int, dimensions: int) -> Floats:
    return generator.normal(0.5, 0.15, (rows, dimensions))


DISTRIBUTIONS: dict[str, Callable[[Generator, int, int], Floats]] = {
    "uniform": _uniform,
    "correlated": _correlated,
    "anti-correlated": _anti_correlated,
    "normal": _normal,
}
