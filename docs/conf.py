"""How these pages are built: `make docs`. Every warning is an error there.

The docstrings of this project are plain text: a line `name   what it is` stands for an entry of a
list, what is indented by four is shown as it stands. `as_rst` turns them into what Sphinx reads.
"""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.util.inspect import stringify_signature

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

project = "replay-server"
author = "the authors of replay-server"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["images"]

myst_heading_anchors = 4  # the anchors that forges make
myst_enable_extensions = ["colon_fence"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "replay-server"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["pages.css"]
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp, .go"

# PROTOCOL.md names the blocks that a test reads by what they are; no language has these names.
PLAIN = ("layout", "golden", "power")
# Files of the repository that are pages here. What else lies outside is a file to look at.
PAGES = {
    "../PROTOCOL.md": "protocol.md",
    "../ARCHITECTURE.md": "architecture.md",
    "../deploy/LATENCY.md": "latency.md",
}
OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)#]+\.md)\)")
ENTRY = re.compile(r"^(?P<names>[a-z]\w*(?:, [a-z]\w*)*)(?: {2,}(?P<said>\S.*))?$")


def escaped(text: str) -> str:
    """Plain text as reStructuredText says it: what stands in backticks is code, the rest words."""
    parts = re.split(r"(`[^`]+`)", text)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f"`{part}`"
        else:
            parts[i] = re.sub(r"([*|_\\])", r"\\\1", part)
    return "".join(parts)


def block_of(lines: list[str]) -> list[str]:
    """A paragraph of a docstring: code, a list of entries, or words."""
    if all(line.startswith("    ") for line in lines):
        return ["::", "", *lines, ""]
    first = ENTRY.match(lines[0])
    if first is None or not first["said"]:
        return [escaped("\n".join(lines)), ""]
    made: list[str] = []
    for line in lines:
        entry = None if line.startswith(" ") else ENTRY.match(line)
        if entry is not None and (entry["said"] or not made):
            made += ["", f"``{entry['names']}``", f"    {escaped(entry['said'])}"]
        elif line.startswith(" "):
            made.append(f"    {escaped(line.strip())}")
        else:
            made.append(f"    {escaped(line)}")
    return [*made, ""]


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring of this project, for Sphinx."""
    made: list[str] = []
    for paragraph in "\n".join(lines).strip("\n").split("\n\n"):
        made += block_of(paragraph.split("\n"))
    return "\n".join(made).split("\n")


def on_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list) -> None:
    """Hook of autodoc: a docstring is about to be read; "See above" means that of its file."""
    text = "\n".join(lines)
    if what == "class" and text.startswith("See above."):
        whole = inspect.getdoc(sys.modules[thing.__module__]) or ""
        text = f"{whole}\n\n{text.removeprefix('See above.').strip()}"
    lines[:] = as_rst(text.split("\n"))


def on_signature(app: Any, what: str, name: str, thing: Any, *rest: Any) -> tuple | None:
    """Hook of autodoc: a dataclass takes what its fields say, whatever its __new__ looks at."""
    if what != "class" or not is_dataclass(thing):
        return None
    taken = inspect.signature(thing.__init__)
    shown = taken.replace(
        parameters=list(taken.parameters.values())[1:], return_annotation=taken.empty
    )
    return stringify_signature(shown), None


def inside(link: re.Match) -> str:
    """A link that leads out of docs/ as one that the built pages have."""
    text, path = link["text"], link["path"]
    if path in PAGES:
        return f"[{text}]({PAGES[path]})"
    return f"{{download}}`{text.replace('`', '')} <{path}>`"


def on_source(app: Any, page: str, text: list[str]) -> None:
    """Hook of Sphinx: a page is about to be read."""
    text[0] = OUTSIDE.sub(inside, text[0])


def setup(app: Any) -> None:
    for name in PLAIN:
        app.add_lexer(name, TextLexer)
    app.connect("source-read", on_source)
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("autodoc-process-signature", on_signature)
