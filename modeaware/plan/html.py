"""A plan as one self-contained page: no script, no font, no image, no network. Pure.

The page is ``plan.html.jinja`` over the sections of the text. jinja2 escapes every text, and makes it printable.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from modeaware.clock import utc
from modeaware.errors import ModeAwareError
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import CHOSEN, sections
from modeaware.printable import printable


def plan_html(plan: ResizePlan) -> str:
    """Return the page."""
    head, *others = sections(plan)
    return _template().render(head=head, sections=others, made=utc(plan.created_ms), mark=CHOSEN)


def write_page(plan: ResizePlan, file: Path) -> None:
    """Write the page.

    Raises:
        ModeAwareError: the file cannot be written.
    """
    try:
        file.write_text(plan_html(plan), encoding="utf-8")
    except OSError as error:
        raise ModeAwareError(f"cannot write {file}: {error.strerror}") from error


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    return environment.from_string(files("modeaware.plan").joinpath("plan.html.jinja").read_text(encoding="utf-8"))
