"""Replacements with deletions for hours, under steady load, on a real broker: ``python -m tests.soak``."""
