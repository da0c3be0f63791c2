"""Rewards to advantages: functions from Signals to [..., B] or, token by token, [..., B, T].

Promises: needs, the optional fields of Signals it reads.
"""

from __future__ import annotations

from testbed.registry import Registry

advantage = Registry("advantage", package="testbed.advantages")
