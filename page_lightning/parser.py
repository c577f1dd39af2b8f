"""A command-line parser whose errors are one line."""

from __future__ import annotations

import re
import sys
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override


class PageParser(LightningArgumentParser):
    """A parser that ends with status 2 and one line, which names the option, where an argument is wrong."""

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # inside another parser, which knows the whole name of the option
            super().error(message, ex)
        fail(condense(message))


def fail(message: str) -> NoReturn:
    """End the program with status 2 and one line on standard error.

    Raises:
        SystemExit: always.
    """
    sys.stderr.write(f"page-lightning: error: {' '.join(message.split())}\n")
    raise SystemExit(2)


def condense(message: str) -> str:
    """What a parser's message of several lines says about an option, as ``option: what was expected; got value``."""
    option = re.match(r'Parser key "([^"]+)":', message.strip())
    text = re.sub(r'Parser key "[^"]+":\s*', "", message)
    text = re.sub(r"<class '([^']+)'>", r"\1", text)
    text = re.sub(r"Expected an? typing\.Literal(\[[^\]]*\])", r"expected one of \1", text)
    text = re.sub(r"Expected an? dot import path string: (\S+)", r"there is no class '\1'", text)
    text = re.sub(r"Expected an instantiatable class, but \S+ is abstract", "name its class before its options", text)
    text = re.sub(r"Expected an? ", "expected ", text)
    given = re.search(r"(?:Given value|Got value): (.*)", text, re.DOTALL)
    reasons = re.split(r"^\s*- ", re.split(r"Given value type:", text)[0], flags=re.MULTILINE)[1:]
    reasons = [" ".join(reason.split()) for reason in reasons]
    reasons = [r for r in reasons if not re.match(r"expected (path|NoneType)|Does not validate", r, re.IGNORECASE)]
    reasons = [r for r in reasons if "there is no class" in r] or reasons
    if reasons:
        text = " or ".join(dict.fromkeys(reasons))
        complete = "got" in text.lower() or "class" in text or "it must be" in text
        text += f"; got {given[1]}" if given and not complete else ""
    return (f"{option[1]}: " if option else "") + re.sub(r"\s*\.?\s*Got value: ", "; got ", text)
