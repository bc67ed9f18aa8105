"""How Sphinx makes the API reference and the pages beside it: ``make docs``. Nothing is fetched."""

from __future__ import annotations

import modeaware

project = "modeaware"
version = release = modeaware.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
html_theme = "furo"
html_title = f"modeaware {release}"
html_show_copyright = False

# The repository is the source, so that links between README, docs/ and the code are the ones that people follow there.
root_doc = "docs/reference/index"
include_patterns = ["*.md", "docs/*.md", "docs/reference/*.rst", "examples/README.md"]
exclude_patterns = [".*", "artifacts", "benchmarks", "build", "dist", "modeaware", "partitioners", "tests"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

# Every reference to a name of the API has to lead somewhere. Without a network those to Python's own names and to the
# wrapped libraries' lead nowhere, and what is inside is for readers of the code.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!modeaware|partitioners).*"),
    (r"py:.*", r".*\._\w+"),  # private bases and results
    (r"py:.*", r"modeaware\.(?:clock|controller|endpoint|lifecycle|modelog|views)\b.*"),
    (r"py:.*", r"modeaware\.(?:admin|spark\.sink)\b.*"),
    (r"py:.*", r"modeaware\.local\.(?:cluster|process|settings)\b.*"),
    (r"py:.*", r"modeaware\.confluent\._\w+\..*"),
    (r"py:obj", r"modeaware\..*\.[KV]"),  # type variables
]
