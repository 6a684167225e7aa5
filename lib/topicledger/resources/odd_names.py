"""Names that brokers accept as they are and that their author probably meant otherwise: plans warn of them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.manifests.files.values import ANY_PLACEHOLDER, TEMPLATE_HINT
from topicledger.manifests.rows import BLANK_AT_ENDS

SEVERAL = "^[^=]*[,;]"
"""Matches several names in one; a distinguished name, which has a `=`, has commas, too."""


def odd(**names: Column) -> Column:
    """Return string: why a name, by its column's name, is odd in any kind of resource, else null."""
    its = " or ".join(names)
    text = F.concat_ws(" ", *names.values())
    blank, *blanks = (name.rlike(BLANK_AT_ENDS) for name in names.values())
    for each in blanks:
        blank = F.coalesce(blank, F.lit(False)) | F.coalesce(each, F.lit(False))
    return F.when(blank, F.lit(f"{its} begins or ends with a blank, which belongs to the name: remove it")).when(
        text.rlike(ANY_PLACEHOLDER), F.lit(f"{its} {TEMPLATE_HINT}")
    )


def is_several(what: str, name: Column) -> Column:
    """Return string: that a name has separators in it, else null. `what`: its column."""
    return F.when(
        name.rlike(SEVERAL), says(what, name, "it is one name with a comma or a semicolon: write one row per name")
    )


def says(what: str, name: Column, why: str) -> Column:
    """Return a reason with the name: `what` is its column."""
    return F.concat(F.lit(f"{what} is "), name, F.lit(f"; {why}"))
