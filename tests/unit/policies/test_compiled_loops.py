"""Compiled loops of the toy transformer that are kept on disk."""

import re
from pathlib import Path

import numba
import numpy as np

from testbed.policies.toy import simd, step_kernels


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


def test_weights_with_and_without_gaps_share_one_version_and_other_gaps_get_their_own(tmp_path, monkeypatch):
    def times(y, w, pair):
        y[:] = w[0, 0, 1] * pair[0][0, 1, 0]

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    run, y = simd.compiled_for_weights("w", "pair")(times), np.zeros(2, np.float32)
    one = np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2)
    gapped = np.tile(one, (2, 1, 2))[:, :, :2]
    for w in (one, gapped):
        run(y, w, (w, w))
        assert y.tolist() == [6, 6], "2 times 3"
    assert not gapped.flags.c_contiguous
    assert len(list(tmp_path.rglob("*.nbc"))) == 1
    run(y[::-1], one, (one, gapped))
    assert y.tolist() == [6, 6]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2


def test_the_checksum_is_of_every_file_that_loops_take_code_from():
    files = Path(simd.__file__).parent.glob("*_kernels.py")
    taken = {name for file in files
             for name in re.findall(r"^from testbed\S*\.(\w+) import", file.read_text(), re.M)}  # fmt: skip
    assert {f"{name}.py" for name in taken} == set(simd.SHARED)


def test_the_compiled_draw_never_takes_a_token_whose_mass_is_zero_in_float32():
    law, power = np.full((3, 8), np.log(0.5), np.float32), np.zeros((3, 8), np.float32)
    law[0] = -500.0
    drawn = np.full(2, 7, np.uint64)
    step_kernels._draw(drawn, law, power, np.array([0.0, 0.5]))
    assert drawn.tolist() == [1, 2]
