"""What is declared, locked, installed and shipped is one and the same."""

import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONDA_NAMES = {"torch": "pytorch", "playwright": "playwright-python"}
SYSTEMS = [("linux", "Linux"), ("darwin", "Darwin")]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# PyTorch's GPU wheel asks for these, its CPU wheel does not; so they are not locked.
CUDA = re.compile(r"nvidia-|cuda-|triton$|pytorch-triton")


@pytest.fixture(scope="module")
def project(repository):
    return tomllib.loads((repository / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def declared(project):
    return [
        Requirement(text)
        for text in [
            *project["project"]["dependencies"],
            *project["project"]["optional-dependencies"]["test"],
            *project["build-system"]["requires"],
        ]
    ]


@pytest.fixture(scope="module")
def locked(repository):
    lines = (repository / "requirements.lock").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): r for r in requirements}


def applies(marker: Marker | None, environment: dict[str, str]) -> bool:
    return marker is None or marker.evaluate(environment)


def closure(roots: list[Requirement], environment: dict[str, str]) -> set[str]:
    """All packages that the roots need, as far as the installed ones tell."""
    needed: set[tuple[str, str]] = set()
    waiting = [r for r in roots if applies(r.marker, {**environment, "extra": ""})]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} if not CUDA.match(name) else ():
            if (name, extra) in needed:
                continue
            needed.add((name, extra))
            try:
                wanted = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            chosen = {**environment, "extra": extra}
            waiting += [r for r in map(Requirement, wanted) if applies(r.marker, chosen)]
    return {name for name, _ in needed}


def test_the_lock_names_exact_public_versions_once_each_in_order(repository, locked):
    lines = (repository / "requirements.lock").read_text().splitlines()
    names = [line.split("==")[0] for line in lines if not line.startswith("#")]
    assert names == sorted(names, key=str.lower)
    assert len(names) == len(locked)
    for requirement in locked.values():
        assert re.fullmatch(r"==[0-9a-z.]+", str(requirement.specifier)), requirement


def test_the_lock_is_what_is_needed_and_nothing_else(declared, locked):
    here = {name for name, r in locked.items() if applies(r.marker, {})}
    assert closure(declared, {}) == here


@pytest.mark.parametrize(
    ("system", "python"), list(itertools.product(SYSTEMS, PYTHONS)), ids=lambda value: str(value)
)
def test_nothing_is_missing_from_the_lock_on_other_systems(declared, locked, system, python):
    environment = {
        "sys_platform": system[0],
        "platform_system": system[1],
        "python_version": python,
        "python_full_version": f"{python}.1",
    }
    there = {name for name, r in locked.items() if applies(r.marker, environment)}
    assert closure(declared, environment) <= there


def test_the_lock_agrees_with_what_is_declared(declared, locked):
    for requirement in declared:
        version = str(locked[canonicalize_name(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), requirement


def test_what_is_installed_is_what_is_locked(locked):
    for name, requirement in locked.items():
        if applies(requirement.marker, {}):
            installed = importlib.metadata.version(name).split("+")[0]
            assert requirement.specifier.contains(installed), f"{name} {installed}: run make"


def test_conda_users_get_the_same_packages(repository, declared, project):
    environment = yaml.safe_load((repository / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge"]
    listed = {
        canonicalize_name(r.name): r.specifier
        for r in map(Requirement, environment["dependencies"])
    }
    python = str(listed.pop("python"))
    assert python == project["project"]["requires-python"]
    listed.pop("pip")
    assert listed == {
        CONDA_NAMES.get(name := canonicalize_name(r.name), name): r.specifier for r in declared
    }


def pip(command: str, *arguments: str | Path) -> None:
    """Run pip offline, on what is given alone."""
    always = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", command, *always, *arguments], check=True)


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder, repository)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def kept(repository):
    """The files that git keeps or would keep."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.splitlines() if (repository / name).is_file()]


def test_the_wheel_holds_library_data_notebooks_and_profiles_alone(wheel, kept, repository):
    shipped = {
        f"tutorial_lib/share/{name}" if not name.startswith("tutorial_lib/") else name: name
        for name in kept
        if name.startswith(("tutorial_lib/", "notebooks/", "cluster_profiles/"))
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = {n for n in archive.namelist() if ".dist-info/" not in n}
        assert inside == set(shipped)
        for name, source in shipped.items():
            here = hashlib.sha256((repository / source).read_bytes()).hexdigest()
            assert hashlib.sha256(archive.read(name)).hexdigest() == here, name


@pytest.fixture
def installed(wheel, tmp_path):
    """An environment of its own with the wheel in it; the other packages are borrowed."""
    site = tmp_path / "site"
    pip("install", "--target", site, wheel)

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_an_installed_wheel_finds_its_notebooks_profiles_and_data(installed, tmp_path, repository):
    code = """
import json, tutorial_lib
from tutorial_lib.cluster.profiles import profiles_folder
from tutorial_lib.data.datasets import mnist
from tutorial_lib.launcher.lab import prepare
from tutorial_lib.launcher.resources import all_chapters, clone
folder, lines = prepare(None)
print(json.dumps({
    "file": tutorial_lib.__file__, "clone": clone(), "folder": str(folder), "lines": lines,
    "chapters": [c.name for c in all_chapters()], "profiles": str(profiles_folder()),
    "digits": len(mnist().test),
}))
"""
    run = installed(code)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["file"].startswith(str(tmp_path))
    assert found["profiles"].startswith(str(tmp_path))
    assert found["clone"] is None
    assert found["digits"] == 10_000
    originals = sorted(path.stem for path in (repository / "notebooks").glob("*.ipynb"))
    assert found["chapters"] == originals
    copies = (tmp_path / "gan-tutorial" / "notebooks").glob("*.ipynb")
    assert sorted(path.stem for path in copies) == originals
    assert (tmp_path / "gan-tutorial/cluster_profiles/profile_mpi").is_dir()
    assert found["lines"][0].startswith("copied")
