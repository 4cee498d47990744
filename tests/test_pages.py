"""What holds for every page of text: its width, and its links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WIDTH = 120


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", names(PAGES))
def test_lines_wrap_at_120_columns(page: str) -> None:
    """A row of a table cannot be wrapped, nor can a link to a picture."""
    lines = (ROOT / page).read_text().splitlines()
    wide = [line for line in lines if len(line) > WIDTH and not line.startswith(("|", "!["))]
    assert wide == []


@pytest.mark.parametrize("page", names(PAGES))
def test_links_lead_to_files_and_headings_that_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):  # an address elsewhere
            continue
        name, _, heading = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        assert not heading or heading in headings(file.read_text()), target


def test_the_options_that_the_running_page_lists_are_there() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (.+) \|$", (ROOT / "docs" / "running.md").read_text(), flags=re.MULTILINE)
    listed = {(group, name) for group, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert len(listed) > 30
    assert [pair for pair in sorted(listed) if not (ROOT / "conf" / pair[0] / f"{pair[1]}.yaml").is_file()] == []


def headings(text: str) -> set[str]:
    """The anchors that a page's headings get: small letters, hyphens for blanks, no punctuation."""
    found = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
