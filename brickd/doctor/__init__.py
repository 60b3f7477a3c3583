"""Checks of this machine, each with its fix; facts are separate from verdicts."""
