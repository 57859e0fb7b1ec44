"""Take the pictures of the README: pages of the dashboard and `fairlane top`, from the running demo.

python tools/screenshots.py [NAME …]     all of them, or those of these names; needs Chromium

They are written to docs/images. The demo runs for half a minute first, so that there is something to see.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI

from fairlane import Fairlane
from fairlane.cli.loads import LoadReader
from fairlane.cli.terminal import TopScreen

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PAGES = {
    "overview": "/",
    "jobs": "/jobs?q=status:failed,dead,processing",
    "failures": "/failures",
    "tenants": "/tenants",
    "workflow": "/workflows/{workflow}",
}
DARK = {"overview"}
"""Taken once more, in the dark."""
WARM_UP_S = 40.0
FORMAT = """<pre style="font: 14px/1.35 'DejaVu Sans Mono', monospace; display: inline-block; margin: 0; padding: 16px;
background: {background}; color: {foreground}">{code}</pre>"""


def main() -> int:
    wanted = set(sys.argv[1:]) or {*PAGES, "top"}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("there is no Chromium: on Debian, apt install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-u", "-m", "fairlane", "demo", "--port", "0", "--seconds", "600"]
    who = {**os.environ, "LOGNAME": "dana"}
    with subprocess.Popen(command, env=who, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "enqueues" not in said:
            said += demo.stdout.readline()
        link = re.findall(r"http://\S+/login\?link=\S+", said)[0]
        url = re.findall(r"--url (\S+)", said)[0]
        try:
            look(wanted, chromium, link, url)
        finally:
            demo.terminate()
            demo.communicate()
    return 0


def look(wanted: set[str], chromium: str, link: str, url: str) -> None:
    with Fairlane(url) as app:
        drawing = warmed_up(app)
        workflow = app.workflows.list(limit=2).workflows[-1].id
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        if "top" in wanted:
            page.set_content(drawing)
            page.locator("pre").screenshot(path=IMAGES / "top.png")
            print("top.png")
        page.goto(link)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", level=1).wait_for()
        root = link.partition("/login")[0]
        for name in sorted(wanted & set(PAGES)):
            address = root + PAGES[name].format(workflow=workflow)
            page.emulate_media(color_scheme="light")
            take(page, address, name)
            if name in DARK:
                page.emulate_media(color_scheme="dark")
                take(page, address, f"{name}-dark")
        browser.close()


def warmed_up(app: Fairlane) -> str:
    """What `fairlane top` shows after a while, as HTML."""
    reader, until = LoadReader(app), time.monotonic() + WARM_UP_S
    loads = reader.read(live=True)
    while time.monotonic() < until:
        time.sleep(2)
        loads = reader.read(live=True)
    console = Console(
        record=True, width=110, height=28, force_terminal=True, file=io.StringIO(), color_system="truecolor"
    )
    console.print(TopScreen("sqlite", None).draw(console, loads, None))
    return console.export_html(theme=MONOKAI, inline_styles=True, code_format=FORMAT)


def take(page: Page, address: str, name: str) -> None:
    answer = page.goto(address)
    if answer is None or not answer.ok:
        print(f"{name}: {address} answers {answer and answer.status}, no picture", file=sys.stderr)
        return
    page.wait_for_timeout(1500)  # charts and live parts
    page.screenshot(path=IMAGES / f"{name}.png")
    print(f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
