"""Compiling ahead: every scene plays, in processes of its own, and what they leave behind can be shipped."""

import pytest

from streamclust import warm

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("scene", [*warm.USUAL, *warm.OTHERS], ids=lambda scene: scene.__name__)
def test_every_scene_plays(scene):
    warm.play([scene.__name__])


def test_kernels_are_compiled_in_a_process_of_their_own(tmp_path, monkeypatch):
    def checks():
        """Not a scene: only its name is handed on."""

    monkeypatch.setattr(warm, "USUAL", (warm.refits,))
    warm.warm(workers=1)  # finds the kernels that this suite uses
    monkeypatch.setattr(warm, "USUAL", (checks,))
    with pytest.raises(RuntimeError, match="exit code 1"):
        warm.warm(workers=1, cache=tmp_path)


def test_whoever_is_done_helps():
    assert warm.processes(["a", "b", "c"], 8) == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
