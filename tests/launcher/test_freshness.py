from tutorial_lib.launcher.freshness import Ledger, fingerprint, snapshot


def test_the_fingerprint_follows_all_that_decides_the_results(write_chapter, library):
    first, second = write_chapter("01_a", "x = 1"), write_chapter("02_b", "y = 1")
    mark = fingerprint(second, {"seed": 1})
    assert fingerprint(second, {"seed": 1}) == mark
    marks = [mark, fingerprint(second, {"seed": 2}), fingerprint(first, {"seed": 1})]
    write_chapter("01_a", "x = 2")
    marks.append(fingerprint(second, {"seed": 1}))
    (library / "gan.py").write_text("a = 2")
    marks.append(fingerprint(second, {"seed": 1}))
    (library / "new.py").touch()
    marks.append(fingerprint(second, {"seed": 1}))
    assert len(set(marks)) == len(marks)


def test_later_chapters_do_not_matter(write_chapter, library):
    first = write_chapter("01_a", "x = 1")
    mark = fingerprint(first, {})
    write_chapter("02_b", "y = 1")
    assert fingerprint(first, {}) == mark


def test_a_chapter_is_fresh_while_its_mark_and_all_its_files_are_there(write_chapter, tmp_path):
    chapter = write_chapter("01_a")
    ledger = Ledger(tmp_path)
    assert not ledger.is_fresh(chapter, "mark")
    (tmp_path / "01_a.html").touch()
    ledger.record(chapter, "mark", ["01_a.html"])
    assert Ledger(tmp_path).is_fresh(chapter, "mark")
    assert not ledger.is_fresh(chapter, "another mark")
    (tmp_path / "01_a.html").unlink()
    assert not ledger.is_fresh(chapter, "mark")


def test_a_forgotten_chapter_is_not_fresh(write_chapter, tmp_path):
    chapter = write_chapter("01_a")
    ledger = Ledger(tmp_path)
    ledger.record(chapter, "mark", [])
    ledger.forget(chapter)
    assert not ledger.is_fresh(chapter, "mark")


def test_a_damaged_ledger_counts_as_none(write_chapter, tmp_path):
    (tmp_path / ".runs.json").write_text("{")
    assert not Ledger(tmp_path).is_fresh(write_chapter("01_a"), "mark")


def test_a_snapshot_sees_visible_files_at_any_depth(tmp_path):
    for name in ("a.png", ".hidden", "deep/b.png", ".git/c"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert set(snapshot(tmp_path)) == {"a.png", "deep/b.png"}
