"""Compiled loops of the toy transformer that are kept on disk."""

import re
from pathlib import Path

import numba

from testbed.policies.toy import simd


def test_a_kept_loop_is_compiled_anew_when_what_it_is_made_of_changes(tmp_path, monkeypatch):
    def kept() -> bool:
        def same(x):
            return x

        loop = simd.compiled(same)
        assert loop(3) == 3
        return bool(loop.stats.cache_hits)

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert [kept(), kept()] == [False, True]
    monkeypatch.setattr(simd, "CHECKSUM", simd.CHECKSUM ^ 1)
    assert not kept()


def test_the_checksum_is_of_every_file_that_loops_take_code_from():
    files = Path(simd.__file__).parent.glob("*_kernels.py")
    taken = {
        name
        for file in files
        for name in re.findall(r"^from testbed\S*\.(\w+) import", file.read_text(), re.M)
    }
    assert {f"{name}.py" for name in taken} == set(simd.SHARED)
