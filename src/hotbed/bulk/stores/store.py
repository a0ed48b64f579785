"""What every store does, and what it is told of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from hotbed.bulk.recipe import Recipe
from hotbed.core.errors import HotbedError, invalid

ID = "hotbed_id"
"""Column of the rows' ids."""
FINGERPRINT = "hotbed_fingerprint"
MOST_CHARS = 300
"""Of what a client says, in a message of ours."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What is pushed.

    Attributes:
        schema: Arrow schema: `ID` (int64), the columns of the job, the vectors.
        vector_column: name of the column with the vectors, a fixed-size list.
        recipe: of the vectors.
    """

    schema: Any
    vector_column: str
    recipe: Recipe


class Store(Protocol):
    """A table or collection that is ready to take rows of one recipe."""

    def put_part(self, first_id: int, end_id: int, batches: Iterable[Any]) -> None:
        """Insert or replace the rows of a part.

        Args:
            first_id: of the ids that the part may have.
            end_id: the last of them + 1.
            batches: record batches of the schema.
        """
        ...

    def count(self) -> int:
        """Rows that are there now."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def other_vectors(table: str, url: str, rows: Rows) -> HotbedError:
    """The table holds something else already."""
    return invalid(
        f"{table} in {url} holds other vectors than those of fingerprint {rows.recipe.fingerprint}"
    )
