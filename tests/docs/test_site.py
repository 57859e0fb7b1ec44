"""The site of the documentation builds: every page is in its contents, every link and anchor leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_contents_has_the_pages_of_the_site_in_their_order() -> None:
    site = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    listed = re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs" / "index.md").read_text("utf-8"))
    assert ["index.md", *listed] == site


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "transactional-enqueue.html" in (tmp_path / "index.html").read_text("utf-8")
