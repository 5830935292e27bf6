"""Frozen values: schema, event batch, filter algebra, subscription and its SQL, window, operators."""
