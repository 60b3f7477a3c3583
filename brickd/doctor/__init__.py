"""Checks of this machine, each with its fix: facts apart from verdicts."""
