"""Fault tests of whole runs: `make test-faults`.

Runs are killed at any moment, and meet harmed files, dead services, invalid input and secrets.
"""
