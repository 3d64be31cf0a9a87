import pytest

from argosy.data import stdlib
from argosy.data.stdlib import StandardLibrary
from argosy.errors import InputError


def test_it_is_the_source_of_this_python_without_tests():
    library = StandardLibrary.of_this_python()
    names = [document.name for document in library]
    assert names == sorted(names)
    assert {"argparse.py", "json/decoder.py", "asyncio/tasks.py", "unittest/case.py"} <= set(names)
    parts = {part for name in names for part in name.split("/")}
    assert not parts & {"tests", "test", "idlelib", "site-packages", "__pycache__"}
    assert not any(part.startswith(("test", "_sysconfigdata")) for part in parts)
    assert 8e6 < sum(len(document.text.encode()) for document in library) < 20e6


def test_digest_knows_names_and_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(stdlib, "FEWEST_BYTES", 1)
    digests = set()
    for number, files in enumerate(({"a.py": "bc"}, {"ab.py": "c"}, {"a.py": "b", "c.py": "c"}, {"a.py": "bc"})):
        root = tmp_path / str(number)
        root.mkdir()
        for name, text in files.items():
            (root / name).write_text(text)
        digests.add(StandardLibrary(root).digest)
    assert len(digests) == 3


def test_other_files_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(stdlib, "FEWEST_BYTES", 1)
    for name in (
        "a.py",
        "b.pyc",
        "empty.py",
        "test_a.py",
        "tests/x.py",
        "pkg/tests/y.py",
        "site-packages/z.py",
        "pkg/m.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name == "empty.py" else "x")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n")
    assert [document.name for document in StandardLibrary(tmp_path)] == ["a.py", "pkg/m.py"]


def test_a_library_without_source_says_what_to_do(tmp_path):
    (tmp_path / "os.py").write_text("pass")
    with pytest.raises(InputError, match=r"only 0\.0 MB of Python source.*argosy data build"):
        list(StandardLibrary(tmp_path))
