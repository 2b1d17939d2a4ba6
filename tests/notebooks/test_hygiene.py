"""Notebooks as they lie in git: clean, readable, and of one frame."""

import ast
import re
import statistics
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

TAGS = {"parameters", "cluster", "exercise", "check", "solution", "clean-up"}
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
NO_PROSE_BEFORE = {"check"}  # follows its stub
SOLUTION = re.compile(
    r"<details>\s*<summary>Solution</summary>\n\n(.*\n)?```python\n.+?```\n(.*\n)?\s*</details>",
    re.DOTALL,
)
HINT = re.compile(r"<details>\n<summary>Hint</summary>\n\n.+?\n\n</details>", re.DOTALL)


@pytest.fixture
def notebook(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def of_type(notebook: NotebookNode, kind: str) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def tagged(notebook: NotebookNode, tag: str) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if tag in tags(cell)]


def python_of(cell: NotebookNode) -> str:
    """The cell's Python, without cell magics and line magics."""
    return re.sub(r"^\s*%.*$", "", cell.source, flags=re.MULTILINE)


def count_statements(cell: NotebookNode) -> int:
    """Lines that do something: neither blank nor an import."""
    return len(re.findall(r"^(?!from |import )\s*\S", cell.source, re.MULTILINE))


def headings(notebook: NotebookNode) -> list[str]:
    text = "\n".join(cell.source for cell in of_type(notebook, "markdown"))
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)


def test_file_is_valid_and_in_normal_form(path, notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert path.read_text(encoding="utf-8") == nbformat.writes(notebook) + "\n"


def test_no_output_and_no_volatile_metadata(notebook):
    assert notebook.metadata == {
        "kernelspec": KERNELSPEC,
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}, cell.id
        if cell.cell_type == "code":
            assert cell.outputs == [], cell.id
            assert cell.execution_count is None, cell.id


def test_cell_ids_are_readable_and_unique(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    for cell_id in ids:
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cell_id), cell_id


def test_tags_are_of_the_closed_list(notebook):
    for cell in notebook.cells:
        assert tags(cell) <= TAGS, cell.id


def test_size(notebook):
    assert 25 <= len(notebook.cells) <= 45
    lengths = [len(cell.source.splitlines()) for cell in of_type(notebook, "code")]
    assert max(lengths) <= 20
    assert statistics.median(map(count_statements, of_type(notebook, "code"))) <= 8
    for cell in of_type(notebook, "code"):
        assert max(map(len, cell.source.splitlines())) <= 100, cell.id


def test_first_cell_tells_what_it_costs_and_what_it_holds(notebook):
    first = notebook.cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# \d\d\b.+\n\n\S.+", first.source), "title, then a promise"
    for word in ("minutes", "ranks", "Needs"):
        assert word in first.source
    links = re.findall(r"\]\(#(.+?)\)", first.source)
    anchors = [heading.replace(" ", "-") for heading in headings(notebook)]
    assert links == [anchor for anchor in anchors if anchor in links], "contents in reading order"
    assert set(links) >= set(anchors[1:]) - {a for a in anchors if "Exercise-" in a}


def test_parameters_are_literals(notebook):
    (cell,) = tagged(notebook, "parameters")
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.Assign | ast.AnnAssign)
        ast.literal_eval(statement.value)


def test_code_is_python_and_follows_prose(notebook):
    for before, cell in pairwise(notebook.cells):
        if cell.cell_type == "code":
            ast.parse(python_of(cell))
            if not tags(cell) & NO_PROSE_BEFORE:
                assert before.cell_type == "markdown", cell.id
                assert before.source.strip(), before.id


def test_exercises_are_whole_and_come_last(notebook):
    cells = notebook.cells
    exercises = [index for index, cell in enumerate(cells) if "exercise" in tags(cell)]
    assert exercises
    for index in exercises:
        task, stub, check, solution = cells[index - 1 : index + 3]
        assert re.search(r"^### Exercise \d\d\.\d+: .+$", task.source, re.MULTILINE), task.id
        assert HINT.search(task.source), f"{task.id}: no hint"
        assert "..." in stub.source
        assert (check.cell_type, tags(check)) == ("code", {"check"})
        assert "check(" in check.source
        assert (solution.cell_type, tags(solution)) == ("markdown", {"solution"})
        assert SOLUTION.search(solution.source), solution.id
    for tag in ("check", "solution"):
        assert len(tagged(notebook, tag)) == len(exercises)
    # So that a reader who skips them is stopped nowhere.
    for cell in cells[exercises[0] :]:
        if cell.cell_type == "code":
            assert tags(cell) & {"exercise", "check", "clean-up"}, cell.id


def test_links_to_files_lead_somewhere(path, notebook):
    for cell in of_type(notebook, "markdown"):
        for target in re.findall(r"\]\((?!#|https?:)([^)#]+)", cell.source):
            assert (path.parent / target).exists(), target


def test_nothing_of_this_machine(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|Users|work|tmp|root)/", text)
