"""notebooks/README.md tells of every chapter what its own first cell tells."""

import re

import nbformat

ROW = re.compile(r"\| \[(\d\d) ([^\]]+)\]\(([^)]+)\) \| [^|]+ \| (\w+) \| (\d+) \|")


def index(repository):
    text = (repository / "notebooks" / "README.md").read_text(encoding="utf-8")
    return {row[2]: row for row in ROW.findall(text)}


def test_the_index_lists_the_chapters_in_order(repository):
    chapters = sorted(path.name for path in (repository / "notebooks").glob("*.ipynb"))
    assert list(index(repository)) == chapters


def test_the_index_says_what_the_chapters_say(repository):
    for name, (number, title, _, ranks, minutes) in index(repository).items():
        first = nbformat.read(repository / "notebooks" / name, as_version=4).cells[0].source
        assert first.startswith(f"# {number} · {title}\n"), name
        assert f"**{minutes} minutes" in first, name
        assert re.search(rf"ranks: {ranks}\b", first), name


def test_the_first_chapter_leads_to_all_others(repository):
    first, *others = sorted((repository / "notebooks").glob("*.ipynb"))
    text = "\n".join(cell.source for cell in nbformat.read(first, as_version=4).cells)
    for path in others:
        assert f"| [{path.name[:2]} " in text
        assert f"]({path.name}) |" in text
