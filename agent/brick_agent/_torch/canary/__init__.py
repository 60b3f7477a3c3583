"""Canaries: fixed prompts that a worker computes between requests, to be compared with what they gave before."""
