import platform

import torch

from tutorial_lib.distributed import session
from tutorial_lib.distributed.versions import check_versions, differences, own_versions


def test_versions_are_those_of_this_process():
    found = own_versions(["torch", "no-such-package"])
    assert found["Python"] == platform.python_version()
    assert torch.__version__.startswith(found["torch"].split("+")[0])
    assert found["no-such-package"] == "missing"


def test_one_rank_agrees_with_itself():
    ranks = session.start()
    assert check_versions(ranks) == own_versions()


def test_a_difference_names_package_ranks_and_hosts():
    one = {"Python": "3.11.7", "torch": "2.13.0"}
    other = {"Python": "3.11.7", "torch": "2.12.1"}
    assert differences([("a", one), ("b", one)]) == ""
    assert differences([("a", one), ("b", other)]) == (
        "torch: 2.13.0 on rank 0 (a), 2.12.1 on rank 1 (b)"
    )
