"""Experiments, benchmarks and figures."""
