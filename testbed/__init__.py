"""Measure off-policy RL of language models: objectives, recipes, exact lag, policies, one training loop.

`import testbed as tb` provides the names of docs/python.md. Each is loaded on first use, so the import takes
milliseconds. Everything else in the package is internal and may change in any release.
"""

import pkgutil
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

_PLACES = {
    "Batch": "testbed.data.batch:Batch",
    "Bench": "testbed.exact.gradient_report:Bench",
    "Design": "testbed.pipeline.design:Design",
    "LoggedDistribution": "testbed.exact.bandit_moments:LoggedDistribution",
    "Run": "testbed.config.run:Run",
    "UserError": "testbed.errors:UserError",
    "advantage": "testbed.advantages:advantage",
    "aggregate": "testbed.losses.aggregate:aggregate",
    "assert_coverage": "testbed.testing.assertions:assert_coverage",
    "assert_equivalent": "testbed.testing.assertions:assert_equivalent",
    "assert_unbiased": "testbed.testing.assertions:assert_unbiased",
    "assert_variance_below": "testbed.testing.assertions:assert_variance_below",
    "bind": "testbed.conformance.signature:bind",
    "conform": "testbed.conformance.conformance_check:conform",
    "effective_weights": "testbed.inspection.effective_weights:effective_weights",
    "ess": "testbed.diagnostics.ratio_metrics:ess",
    "estimator": "testbed.estimators:estimator",
    "exact_distribution": "testbed.exact.estimator_distribution:exact_distribution",
    "exact_moments": "testbed.exact.estimator_distribution:exact_moments",
    "gradient_report": "testbed.exact.gradient_report:gradient_report",
    "grid": "testbed.config.run:grid",
    "group_report": "testbed.exact.group:group_report",
    "identify": "testbed.conformance.nearest_entries:identify",
    "kl_estimates": "testbed.diagnostics.ratio_metrics:kl_estimates",
    "load": "testbed.results.store:read",
    "log_ratio": "testbed.losses.ratios:log_ratio",
    "min_num_samples": "testbed.testing.sample_size:min_num_samples",
    "objective": "testbed.objectives:objective",
    "pareto_k": "testbed.diagnostics.tail_indices:pareto_k",
    "random_policies": "testbed.exact.response_tree:random_policies",
    "random_tree": "testbed.exact.response_tree:random_tree",
    "ratio_metrics": "testbed.diagnostics.ratio_metrics:ratio_metrics",
    "read_log": "testbed.logs.readers:read",
    "recipe": "testbed.recipes:recipe",
    "schedule": "testbed.staleness:schedule",
    "score_loss": "testbed.losses.score_loss:score_loss",
    "simulate": "testbed.pipeline.simulate:simulate_one",
    "sweep": "testbed.execution.runner:run_sweep",
    "train": "testbed.training.loop:train",
    "tree_facts": "testbed.exact.response_tree:tree_facts",
}
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
