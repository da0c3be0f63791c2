"""Name columns and values in figures: recipes by their papers' names, settings in words."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from analysis.declared_plot import Plot

NAMES: Mapping[str, str] = MappingProxyType(
    {name.lower().replace("-", "_"): name for name in (
        "AIPO", "ALP", "AsymRE", "BAPO", "BPO", "BRAIn", "CHORD", "CISPO", "CTPO", "DAPO", "DCPO", "DISPO",
        "DPO", "DPPO", "dGRPO", "DyPO", "EGAE", "EWMA", "GAE", "GBPO", "GMPO", "GRPO", "GSPO", "HCOPE",
        "IcePop", "JS", "KL", "M2PO", "MDPO", "MHPO", "MIS", "DaGRPO", "MinPRO", "OAPL", "OPD", "OPMD", "P3O",
        "PPO", "PPO-EWMA", "PPO-max", "RAPID", "REC", "RED", "ReMax", "ReMix", "REINFORCE", "RLOO",
        "SAPO", "SFPO", "SFT", "SPEAR", "ST-PPO", "TIS", "TOPR", "TV", "Turn-PPO", "VCPO", "VESPO",
    )}
    | {"chi2": "χ²", "r2vpo": "R²VPO", "holder": "HölderPO", "online_dpo": "online DPO", "ppo_clip": "PPO"}
    | {"holder_annealed": "HölderPO, annealed", "holder_fixed": "HölderPO, fixed"}
    | {"rec_oneside": "REC, one side"}
    | {f"{name.lower()}_reuse": f"{name}, reused" for name in ("GRPO", "MDPO", "ReMix", "SFPO")}
    | {"r2vpo_reuse": "R²VPO, reused"}
)  # fmt: skip
"""Words of a table -> as their sources write them."""

TITLES: Mapping[str, str] = MappingProxyType(
    {"arm": "", "kind": "", "law": "", "mismatch": "engine", "policy_args": "model", "recipe_args": "variant"}
)
"""Columns -> their words; none where the names of the values say it."""


def proper(table: pd.DataFrame, plot: Plot) -> dict[str, str]:
    """Return {value: display name} for the strings in a plot's columns of arms, places and panels."""
    columns = {*plot.arm, plot.x, plot.y, plot.panel} & set(table.select_dtypes(exclude="number").columns)
    return {str(value): named(str(value)) for column in columns for value in table[column].unique()}


def named(text: str) -> str:
    """Return text with the words that sources write otherwise, as GRPO for grpo."""
    return re.sub(r"[\w-]+", lambda word: NAMES.get(word[0].replace("-", "_"), word[0]), text)


def title(plot: Plot) -> str:
    """Return the legend's title: the setting in which arms differ, "" if their names suffice."""
    found = (plot.arm_labels.get(c, TITLES.get(c, c)).rpartition(".")[2].replace("_", " ") for c in plot.arm)
    return ", ".join(filter(None, found))


def natural(value: object) -> tuple[object, ...]:
    """Return a natural sort key: numbers inside words sort by value, missing values last."""
    if isinstance(value, str):
        parts = re.split(r"(\d+(?:\.\d+)?)", value.lower())
        return (1, *((float(part), "") if n % 2 else (0.0, part) for n, part in enumerate(parts)))
    return (2,) if pd.isna(value) else (0, value)  # type: ignore[call-overload]
