"""Policies: functions of a flat weight tensor theta_RP that is passed in, so a snapshot is a copy."""
