"""Measure off-policy RL of language models: objectives, recipes, exact lag, policies, one training loop.

`import testbed as tb` provides the names of docs/python.md. Each is loaded on first use, so the import takes
milliseconds. Everything else in the package is internal and may change in any release.
"""

import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.advantages import advantage as advantage
    from testbed.config.run import Run as Run
    from testbed.config.run import grid as grid
    from testbed.conformance.conformance_check import conform as conform
    from testbed.conformance.nearest_entries import identify as identify
    from testbed.conformance.signature import bind as bind
    from testbed.data.batch import Batch as Batch
    from testbed.diagnostics.ratio_metrics import ess as ess
    from testbed.diagnostics.ratio_metrics import kl_estimates as kl_estimates
    from testbed.diagnostics.ratio_metrics import ratio_metrics as ratio_metrics
    from testbed.diagnostics.tail_indices import pareto_k as pareto_k
    from testbed.errors import UserError as UserError
    from testbed.estimators import estimator as estimator
    from testbed.exact.bandit_moments import LoggedDistribution as LoggedDistribution
    from testbed.exact.estimator_distribution import exact_distribution as exact_distribution
    from testbed.exact.estimator_distribution import exact_moments as exact_moments
    from testbed.exact.gradient_report import Bench as Bench
    from testbed.exact.gradient_report import gradient_report as gradient_report
    from testbed.exact.group import group_report as group_report
    from testbed.exact.response_tree import random_policies as random_policies
    from testbed.exact.response_tree import random_tree as random_tree
    from testbed.exact.response_tree import tree_facts as tree_facts
    from testbed.execution.runner import run_sweep as sweep
    from testbed.inspection.effective_weights import effective_weights as effective_weights
    from testbed.logs.readers import read as read_log
    from testbed.losses.aggregate import aggregate as aggregate
    from testbed.losses.ratios import log_ratio as log_ratio
    from testbed.losses.score_loss import score_loss as score_loss
    from testbed.objectives import objective as objective
    from testbed.pipeline.design import Design as Design
    from testbed.pipeline.simulate import simulate_one as simulate
    from testbed.recipes import recipe as recipe
    from testbed.results.store import read as load
    from testbed.staleness import schedule as schedule
    from testbed.testing.assertions import assert_coverage as assert_coverage
    from testbed.testing.assertions import assert_equivalent as assert_equivalent
    from testbed.testing.assertions import assert_unbiased as assert_unbiased
    from testbed.testing.assertions import assert_variance_below as assert_variance_below
    from testbed.testing.sample_size import min_num_samples as min_num_samples
    from testbed.training.loop import train as train

    diagnose: Any

__version__ = "0.2.0"

_IMPORTED = r"^    from (\S+) import (\w+) as (\w+)$"
_PLACES = {
    name: f"{module}:{found}"
    for module, found, name in re.findall(_IMPORTED, Path(__file__).read_text(encoding="utf-8"), re.MULTILINE)
}
"""Name -> where it is, as the imports above say."""
__all__ = ["__version__", "diagnose", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "diagnose":  # from another package, because it rests on committed tables
        found = pkgutil.resolve_name("testbed.cli.extensions:part")("diagnose")
    elif name in _PLACES:
        found = pkgutil.resolve_name(_PLACES[name])
    else:
        raise AttributeError(f"module 'testbed' has no attribute '{name}'")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
