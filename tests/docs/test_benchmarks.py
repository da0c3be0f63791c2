"""`make bench` says in its last lines who missed the aim, by how much, and who broke."""

import pytest
from benchmarks.__main__ import main


@pytest.mark.slow
def test_the_last_lines_name_what_missed_its_aim_and_what_broke(tmp_path, capfd):
    bodies = {
        "fast": "print('ratio 3 x, target 2')",
        "late": "print('other'); print('ratio 1 x, target 2'); raise SystemExit(1)",
        "lost": "raise SystemExit(3)",
    }
    for name, body in bodies.items():
        (tmp_path / f"bench_{name}.py").write_text(body)
    assert main("*", tmp_path) == 2
    assert capfd.readouterr().out.splitlines()[-5:] == [
        "late missed its aim:", "    ratio 1 x, target 2", "lost broke with exit status 3:", "    see above",
        "1 of 3 benchmarks are as fast as they should be.",
    ]  # fmt: skip
