"""Bugs planted in what the campaign of promises mended: digests, neighbors, clocks, large sweeps."""

from mutants.mutant import Mutant

MUTANTS = (
    Mutant('promise-plan-digest', 'testbed/results/manifest.py', '.hexdigest().encode() != signed[1]', '.hexdigest() == ""', 'tests/campaign/test_p06_damage.py'),
    Mutant('promise-failure-digest', 'testbed/results/store.py', 'if digest is not None and digest != hashlib.sha256(_json(record)).hexdigest():', 'if False:', 'tests/campaign/test_p06_damage.py'),
    Mutant('promise-plan-keeps-no-fields', 'testbed/results/manifest.py', 'if repr(value) != repr(first[field])}', 'if value != first[field]}', 'tests/unit/results/test_records.py'),
    Mutant('promise-settled-before', 'testbed/results/store.py', 'known = pack in self._found or (', 'known = (', 'tests/campaign/test_p04_many_runners.py'),
    Mutant('promise-settled-since', 'testbed/results/store.py', 'known = pack in self._found or (self.folder / "provenance" / f"{pack}.json").exists()', 'known = pack in self._found', 'tests/campaign/test_p04_many_runners.py'),
    Mutant('promise-text-of-an-equal', 'testbed/config/run.py', 'if value is not held[index]:', 'if value != held[index]:', 'tests/campaign/test_p13_ids.py'),
    Mutant('promise-normal-of-an-equal', 'testbed/config/fields.py', '            del good[name]', '            pass', 'tests/unit/config/test_config.py'),
    Mutant('promise-neighbors-stack', 'testbed/execution/packs.py', 'all(map(is_, key, before))', 'all(map(is_, key[:2], before))', 'tests/unit/execution/test_packs.py'),
    Mutant('promise-names-of-others', 'testbed/execution/packs.py', '[names[i] for i in chunk])', 'names[: len(chunk)])', 'tests/campaign/test_p13_ids.py'),
    Mutant('promise-swept-file-lost', 'testbed/results/atomic_files.py', 'for last in (False, True):', 'for last in (True,):', 'tests/campaign/test_p12_bits.py'),
    Mutant('promise-median-overflows', 'analysis/judging/intervals.py', 'if n > COUNTED:', 'if False:', 'tests/unit/analysis/test_analysis.py'),
    Mutant('promise-median-one-off', 'analysis/judging/intervals.py', 'special.bdtr(np.arange((n + 1) // 2)', 'special.bdtr(1 + np.arange((n + 1) // 2)', 'tests/unit/analysis/test_analysis.py'),
    Mutant('promise-silent-planning', 'testbed/execution/progress.py', 'time.monotonic() - last >= WATCH_EVERY', 'False', 'tests/unit/execution/test_progress.py'),
)  # fmt: skip
