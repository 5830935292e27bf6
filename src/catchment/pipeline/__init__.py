"""The stages as PySpark jobs, over history and over live streams."""
