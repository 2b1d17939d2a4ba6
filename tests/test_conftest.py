"""The guards in conftest.py guard."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_part.py": "import pytest\ndef test(): pytest.skip('no such program')",
    "test_package.py": "import pytest\npytest.importorskip('no_such_package')",
    "test_gpu.py": "import pytest\ndef test(): pytest.skip('no GPU')",
    "test_leak.py": "import os\ndef test(): os.environ['LEFT_BEHIND'] = '1'",
}


@pytest.mark.parametrize(
    ("name", "ci", "is_failing"),
    [
        ("test_part.py", "true", True),
        ("test_part.py", "", False),
        ("test_package.py", "true", True),
        ("test_package.py", "", False),
        ("test_gpu.py", "true", False),
        ("test_leak.py", "", True),
    ],
)
def test_what_is_missing_fails_in_ci_alone_and_leaks_fail_everywhere(
    repository, tmp_path, name, ci, is_failing
):
    (tmp_path / name).write_text(TESTS[name])
    (tmp_path / "conftest.py").write_text((repository / "tests/conftest.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-c", Path(os.devnull), "--rootdir", tmp_path]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", name],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
    )
    has_failed = any(word in run.stdout for word in ("1 failed", "1 error"))
    assert has_failed == is_failing, run.stdout
