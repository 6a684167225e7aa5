"""Find sentences that are hard to read in docstrings, comments, messages, help texts, pages and test names.

`check_prose.py [PATH...]` prints one line per finding and exits with 1 if there are any; by default it checks the whole
project. Lines that contain `prose: as is` are skipped, for quotations and for words that are right in their place.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("lib", "jobs", "schemas", "scripts", "benchmarks", "tests", "examples")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
AS_IS = "prose: as is"
MOST_OF_A_NAME = 70
"""Longest name of a test without a docstring, in characters."""
_WORDS_OF_A_MESSAGE = 4


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Words that slow readers down, and what to write instead."""

    words: str
    """A case-sensitive regular expression."""
    instead: str


_SENTENCE = r"(?:^|(?<=[.!?:;] ))"
PATTERNS = (
    Pattern(words=_SENTENCE + r"Of (?!course\b)", instead="put the subject first"),
    Pattern(
        words=_SENTENCE + r"(?:Who|Whoever|Whatever|What) (?!is new\b|to\b|it does\b|each\b)(?![^.?!]*\?)[a-z]",
        instead="name the subject with a noun",
    ),
    Pattern(words=r"\b(?:is|are|was|were) to (?!\w+ing\b)[a-z]+\b", instead="will, must, should, or the present"),
    Pattern(words=r"\bso (?:many|much|few)\b(?! more| as| that)", instead="this many, or the number"),
    Pattern(words=r"\b(?:as ever|anew)\b", instead="as before, again"),
    Pattern(words=r"\bcomes? through\b|\bcame through\b", instead="succeeds"),
    Pattern(words=r"\bgo(?:es)? on\b|\bwent on\b|\bgoing on\b", instead="continues"),
    Pattern(words=r"\bnobody knows\b|\bsays? nothing\b", instead="is unknown, has no output"),
    Pattern(words=r"\banother one\b", instead="name the thing"),
    Pattern(words=r"\bothers'(?! \w)", instead="name the thing"),
    Pattern(words=r"\b(?:judge|judges|judged|judging)\b", instead="validate or evaluate"),
    Pattern(words=r"\bcame? to\b(?= (?:nothing|it)\b)|\bwhat (?:\w+ ){1,3}came to\b", instead="the result of"),
    Pattern(
        words=r"\b(?:[Nn]one|null|empty|true|false|Error|refused?|[Rr]aises \w+|warns|stopped|,) ?where\b(?!,)|"
        r"\bwhere (?:there (?:is|are|was|were)|nobody|nothing|Kafka|Spark|not\b)",
        instead="if, when",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text, and the line on which it begins."""

    line: int
    words: str


def of_python(source: str, *, is_test: bool) -> Iterator[Text]:
    """Yield comments, docstrings and messages; in a test module, names of tests instead of messages."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(line=token.start[0], words=token.string.lstrip("#").strip())
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings or (not is_test and len(node.value.split()) >= _WORDS_OF_A_MESSAGE):
                yield Text(line=node.lineno, words=node.value)
        elif is_test and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            sentence = node.name.removeprefix("test_").replace("_", " ")
            if len(node.name) > MOST_OF_A_NAME and ast.get_docstring(node) is None:
                yield Text(line=node.lineno, words=f"{AS_TOO_LONG}{sentence}")
            else:
                yield Text(line=node.lineno, words=sentence[:1].upper() + sentence[1:])


AS_TOO_LONG = "\0"
"""Prefix of a test name that is too long."""


def of_page(source: str) -> Iterator[Text]:
    """Yield the lines of a page without its code blocks."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            # Table cells and list items also begin a sentence.
            for part in re.split(r"\s*\|\s*|^\s*[-*\d.]+\s+|^#+\s+", re.sub(r"`[^`]*`", "`x`", line)):
                if part.strip():
                    yield Text(line=number, words=part.strip())


def findings(path: Path) -> Iterator[str]:
    """Yield one line per finding: file, line, the words, and what to write instead."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    is_test = path.name.startswith("test_")
    texts = of_python(source, is_test=is_test) if path.suffix == ".py" else of_page(source)
    for text in texts:
        if text.words.startswith(AS_TOO_LONG):
            yield f"{path}:{text.line}: a test name of over {MOST_OF_A_NAME} characters without a docstring"
            continue
        # Code in backticks isn't prose.
        for offset, written in enumerate(text.words.split("\n")):
            line, sentence = text.line + offset, re.sub(r"`[^`]*`", "`x`", written.strip())
            if line <= len(lines) and AS_IS in lines[line - 1]:
                continue
            for pattern in PATTERNS:
                for found in re.finditer(pattern.words, sentence):
                    around = sentence[max(0, found.start() - 20) : found.end() + 30]
                    yield f"{path}:{line}: {around!r}: {pattern.instead}"


def files(named: Sequence[Path]) -> Iterator[Path]:
    """Yield the Python files and pages at the given paths."""
    for path in named:
        if path.is_dir():
            yield from (each for each in sorted(path.rglob("*")) if each.suffix in (".py", ".md") and each.is_file())
        else:
            yield path


def main() -> int:
    """Print the findings, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    named = parser.parse_args().paths or [ROOT / name for name in (*FOLDERS, *PAGES)]
    count = 0
    for path in files(named):
        for line in findings(path):
            count += 1
            print(line)
    if count:
        print(f"{count} findings: reword them, or end the line with `# {AS_IS}`", file=sys.stderr)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
