"""Peaks of devices, and the distance of bricks from them."""
