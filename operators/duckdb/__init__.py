"""DuckDB, behind one door: opened within a budget, shut in, its errors told as ours."""

from .door import (
    EDGE_SHARE,
    SHARE,
    VECTOR_ROWS,
    Database,
    first_lines,
    opened,
    portions,
    share_alone,
    share_beside_joins,
)

__all__ = [
    "EDGE_SHARE", "SHARE", "VECTOR_ROWS", "Database", "first_lines", "opened", "portions",
    "share_alone", "share_beside_joins",
]  # fmt: skip
