"""Which files `resume` takes for those of the user alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lrurun.plugins import is_protected


def test_a_file_is_protected_if_nobody_else_can_change_what_its_path_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link, user = tmp_path / "a" / "b", tmp_path / "link.py", os.getuid()
    folder.mkdir(parents=True)
    file = folder / "mine.py"
    assert not is_protected(file), "somebody else could write it"
    file.write_text("")
    link.symlink_to(file)
    for place in (file, folder, folder.parent):
        assert is_protected(file)
        assert is_protected(link)
        before = place.stat().st_mode
        place.chmod(before | 0o002)
        assert not is_protected(file)
        assert not is_protected(link), "a link leads there"
        place.chmod(before)
    folder.chmod(0o1777)
    assert is_protected(file), "nobody replaces files of others in a sticky folder"
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert is_protected(file) == (user == 0), "what root can change is as safe as the machine"
