"""People who approve: one person counts once, however a name is typed."""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cf", "Cc"})
_MORE_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters of other categories that are shown as nothing or as a blank, such as variation selectors."""


def person_key(name: str | None) -> str:
    """Return a name in the form for comparisons; empty if nothing of it can be seen.

    Names are the same person if they differ only in case, in blanks, in invisible characters, or in Unicode's
    encodings of the same letters.
    """
    found = "".join(each for each in name or "" if each.isspace() or not _is_hidden(each))
    # Folding the case may leave letters that have another form, and the reverse.
    for _ in range(2):
        found = unicodedata.normalize("NFKC", found).casefold()
    return " ".join(unicodedata.normalize("NFKC", found).split())


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or _MORE_HIDDEN.match(character) is not None
