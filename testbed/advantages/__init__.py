"""Turn rewards into advantages: functions from Signals to [..., B] or, per token, [..., B, T].

Promises, which contract tests check:

needs:      the optional fields of Signals it cannot do without.
uses:       the optional fields it reads when they are there.
per_token:  True when it returns [..., B, T], 0 outside the mask.
scope:      whose rewards an advantage depends on: its own ("sequence"), those of its "group", or of the
            whole "batch", which then must not be split.

`name@source` is a variant: what a public stack computes under the same name.
"""

from testbed.registry import Registry

advantage = Registry("advantage", package="testbed.advantages")
