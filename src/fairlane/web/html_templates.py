"""The templates of pages, with the filters they use. Everything they write is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairlane.web import assets, formats


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fairlane.web", "html"),
        autoescape=True,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=formats.shown_text,
    )
    filters = (
        *(formats.number, formats.rough, formats.span, formats.distance, formats.instant, formats.ago),
        *(formats.percent, formats.indented_json, formats.in_words, formats.worded, formats.quoted),
    )
    environment.filters.update({function.__name__: function for function in filters})
    environment.globals["version"] = assets.VERSION
    environment.globals["theme"] = Markup(assets.THEME)
    return environment


def rendered(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)
