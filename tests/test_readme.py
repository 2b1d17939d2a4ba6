"""The README says what is there."""

import re

import nbformat
import pytest
from typer.main import get_command

from tutorial_lib.launcher.cli import app

TABLE_ROW = re.compile(r"^\| \[(\d\d) ([^\]]+)\]\((notebooks/\d\d_\w+\.ipynb)\) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text()


def test_the_table_lists_every_notebook_in_order(readme, repository):
    listed = [match[2] for match in TABLE_ROW.findall(readme)]
    there = sorted(f"notebooks/{path.name}" for path in (repository / "notebooks").glob("*.ipynb"))
    assert listed == there


def test_the_table_names_notebooks_as_they_name_themselves(readme, repository):
    for number, title, path in TABLE_ROW.findall(readme):
        first = nbformat.read(repository / path, as_version=4).cells[0].source
        assert first.splitlines()[0] == f"# {number} · {title}"


def test_every_link_and_picture_leads_to_a_file(readme, repository):
    targets = re.findall(r"\]\(([^)#]+)\)", readme)
    missing = [t for t in targets if "://" not in t and not (repository / t).exists()]
    assert missing == []


def test_every_make_target_exists_and_is_explained_by_make_itself(readme, repository):
    makefile = (repository / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)(?=\s|`)", readme)) <= targets
    assert set(re.findall(r"'make ([a-z-]+) ", makefile)) == targets - {"help"}


def test_every_command_exists(readme):
    commands = get_command(app).commands
    named = re.findall(r"`(?:\.venv/bin/)?gan-tutorial ([a-z]+)", readme)
    assert named
    assert set(named) <= set(commands)


def test_the_layout_names_every_room_and_only_those(readme, repository):
    layout = readme.split("## Layout")[1].split("```")[1]
    rooms = {path.parent.name for path in (repository / "tutorial_lib").glob("*/__init__.py")}
    folders = set(re.findall(r"\b([a-z_]+)/", layout))
    top = {"notebooks", "tutorial_lib", "cluster_profiles", "benchmarks", "docs", "tests"}
    assert folders == rooms | top | {"outputs", "lab"}


@pytest.fixture(scope="module")
def chinese(repository):
    return (repository / "README.zh-CN.md").read_text()


def blocks(text):
    return re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)


def commands(text):
    """What stands in the code blocks, without the explanations."""
    lines = [line for block in blocks(text) for line in block.splitlines()]
    return [re.split(r" {2,}(?=#)| {2,}(?=\S+$)|(?<=/) {3,}", line)[0].rstrip() for line in lines]


def prose(text):
    for block in blocks(text):
        text = text.replace(block, "")
    return text


def test_the_chinese_one_has_the_same_headings_in_the_same_order(readme, chinese):
    levels = [re.findall(r"^(#+) ", prose(text), re.MULTILINE) for text in (readme, chinese)]
    assert levels[0] == levels[1]
    assert not re.search(r"^## [\x00-\x7f]+$", chinese, re.MULTILINE), "a heading in English"


def test_the_chinese_one_has_the_same_commands(readme, chinese):
    assert commands(chinese) == commands(readme)
    inline = [set(re.findall(r"`([^`]+)`", prose(text))) for text in (readme, chinese)]
    assert inline[0] == inline[1]


def test_the_chinese_one_has_the_same_links_and_each_leads_to_the_other(readme, chinese):
    links = [sorted(re.findall(r"\]\(([^)]+)\)", text)) for text in (readme, chinese)]
    links[0].remove("README.zh-CN.md")
    links[1].remove("README.md")
    assert links[0] == links[1]


def test_the_chinese_table_lists_the_same_notebooks_with_as_many_ranks(readme, chinese):
    rows = [
        [
            (number, path, re.sub(r"none|无", "-", line.split("|")[-2]).strip())
            for line in text.splitlines()
            for number, _, path in TABLE_ROW.findall(line)
        ]
        for text in (readme, chinese)
    ]
    assert rows[0] == rows[1]


def test_chinese_paragraphs_are_not_broken_where_a_space_would_show(chinese):
    assert re.findall(r"[\u2e80-\uffff]\n[\u2e80-\uffff]", prose(chinese)) == []
