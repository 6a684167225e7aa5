"""Variables of manifest files: `${NAME}` in unquoted YAML text, with the values of `--var NAME=VALUE`.

Values never come from the environment, and are never replaced themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from topicledger.errors import UsageError
from topicledger.text import show, similar

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SCHEMA: Mapping[str, object] = {"type": "string", "pattern": rf"\$\{{{_NAME.pattern}\}}"}
"""The JSON Schema of a text with a variable."""
_PLACE = re.compile(r"\$\{([^}]*)\}?")


class VariableError(ValueError):
    """A text has a variable without a value; str() says which, and what to do."""


class Variables:
    """The values for the variables of files."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.used: set[str] = set()
        """Names that files had so far."""

    def replaced(self, text: str) -> str:
        """Return a text with values for its variables; raises VariableError, also if nothing is left of the text."""
        filled = _PLACE.sub(self._value, text)
        if not filled:
            raise VariableError(f"`{show(text)}` is empty; give --var a value")
        return filled

    def _value(self, found: re.Match[str]) -> str:
        name, shown = found[1], show(found[0])
        if not found[0].endswith("}") or not _NAME.fullmatch(name):
            raise VariableError(f"`{shown}` is no variable such as ${{NAME}}; quote the text if it is meant as it is")
        if name not in self.values:
            near = similar(name, self.values)
            hint = f" ({near})" if near else ""
            raise VariableError(
                f"`{shown}` has no value{hint}; give --var {name}=VALUE, or quote the text if it is meant as it is"
            )
        self.used.add(name)
        return self.values[name]


def variables_in(given: Sequence[str]) -> Mapping[str, str]:
    """Return the values of options `--var NAME=VALUE` by name; raises UsageError."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(f"--var {show(each)}: write NAME=VALUE; a NAME has letters, digits and _")
        if name in found:
            raise UsageError(f"--var gives {name} twice")
        if not value.strip():
            # As when a shell replaced a variable that isn't set: `${TEAM}*` would then be every name.
            raise UsageError(f"--var {name} has no value; give one, or write what files mean without the variable")
        if "${" in value:
            raise UsageError(f"--var {name}: a value can't have variables, and {show(value)} has one")
        found[name] = value
    return found
