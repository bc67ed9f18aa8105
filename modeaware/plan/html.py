"""A plan as one page that needs nothing else: no script, no font, no image, no network. Pure.

The page is ``plan.html.jinja`` over the sections of the text; jinja2 escapes every text, and makes it printable.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from modeaware.clock import utc
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import CHOSEN, sections
from modeaware.printable import printable


def plan_html(plan: ResizePlan) -> str:
    """Return the page."""
    head, *others = sections(plan)
    return _template().render(head=head, sections=others, made=utc(plan.created_ms), mark=CHOSEN)


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    return environment.from_string(files("modeaware.plan").joinpath("plan.html.jinja").read_text(encoding="utf-8"))
