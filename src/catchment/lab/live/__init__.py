"""Loads on a running overlay: its processes, what publishers and subscribers do, and raw JetStream beside it."""
