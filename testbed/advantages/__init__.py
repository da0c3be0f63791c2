"""Rewards to advantages. One file per family; `advantage` registers them."""

from __future__ import annotations

from testbed.registry import Registry

advantage = Registry("advantage", package="testbed.advantages")
