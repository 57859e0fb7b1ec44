"""The log-in page: open to everybody, and shown instead of any page to those who are not logged in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from fairlane.api.auth.sessions import forget_link
from fairlane.client.rights import Right
from fairlane.web.page import CurrentPage, Pages, Values

pages = Pages("login", "/login")


@pages.page("", Right.OPEN, "login.html")
async def show_login(page: CurrentPage, link: Annotated[str | None, Query(max_length=500)] = None) -> Values:
    """Show the page of a one-time link, or how to get one.

    Opening the page does not use up the link: mail scanners and previews follow links but press no button.
    """
    forget_link(page.request)
    # A whole link may be pasted where its secret is asked for.
    return {"link": link and link.rpartition("link=")[2][:200], "problem": None}
