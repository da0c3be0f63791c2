"""Turn rewards into advantages: functions from Signals to [..., B] or, per token, [..., B, T].

Promises, which contract tests check:

needs:      the optional fields of Signals that the advantage requires.
uses:       the optional fields that it reads if present.
per_token:  True when it returns [..., B, T], 0 outside the mask.
scope:      the rewards that an advantage depends on: its "sequence" alone, its "group", or the whole "batch",
            which then must not be split.

`name@source` is a variant: a public stack's computation under the same name.
"""

from testbed.registry import Registry

advantage = Registry("advantage", package="testbed.advantages")
