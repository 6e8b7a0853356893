"""A page of docs/ whose tables a run writes anew: what stands between two marks is replaced.

<!-- T2a -->
what a run wrote
<!-- end of T2a -->
"""

from __future__ import annotations

import re

MARKS = "<!-- {} -->", "<!-- end of {} -->"


def replaced(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of `name`. Raises SystemExit where it has none."""
    begin, end = (mark.format(name) for mark in MARKS)
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not found.search(page):
        raise SystemExit(f"the page has no marks of {name}: {begin} and {end}")
    return found.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", page)
