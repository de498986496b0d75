import pytest


@pytest.mark.compiled
def test_the_demo_ends_by_itself(tmp_path, command):
    done = command("demo", "--events", "12000", "--pictures", tmp_path / "pictures")
    assert "born 0 at event 1" in done.stdout
    assert "of 12,000 events" in done.stdout
    assert "adjusted Rand index" in done.stdout
    assert (tmp_path / "pictures" / "hierarchy.png").read_bytes().startswith(b"\x89PNG")
