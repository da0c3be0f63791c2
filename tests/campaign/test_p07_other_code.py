"""P7: results of different code never blend silently."""

import shutil

from support.refusals import refuses
from support.small_store import PACKS, filled

from testbed.results import fingerprint, manifest, parquet
from testbed.results.store import Store, read, status


def others() -> list[dict[str, int | str]]:
    """Return fingerprints that differ from ours in one entry: changed, missing, or one more."""
    ours = dict(fingerprint.fingerprint())
    named = [name for name in ours if name not in ("format", "run_version")]
    changed = [ours | {name: "1.0"} for name in named] + [ours | {"run_version": 0}]
    missing = [{key: value for key, value in ours.items() if key != name} for name in named]
    return [*changed, *missing, ours | {"scipy": "1.0"}]


def test_numbers_of_other_code_are_never_mixed_in(tmp_path, monkeypatch, campaign):
    for number, other in enumerate(others()):
        here = tmp_path / str(number)
        filled(here / "ours", PACKS[:1])
        with monkeypatch.context() as patch:
            for module in (manifest, parquet):
                patch.setattr(module, "fingerprint", lambda other=other: other)
            refuses(r"computed by other code: .* instead of .*Go on with", Store.start, here / "ours", PACKS)
            if other["run_version"]:  # or the ids of cells would be others, too
                Store.start(here / "theirs", PACKS)
        assert status(here / "ours").done == 1, "the old folder stays readable"
        if not other["run_version"]:
            continue
        for path in (here / "ours" / "packs").iterdir():
            shutil.copy(path, here / "theirs" / "packs")
        assert Store(here / "theirs").done() == set()
        refuses(r"computed by different code: .* instead of", read, here / "ours", here / "theirs")
    campaign.tried("fingerprints that differ in one entry: resuming, copying in, merging", 3 * len(others()))
