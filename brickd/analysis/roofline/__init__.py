"""Peaks of devices, and how far bricks are below them."""
