"""The peaks of devices, and how far bricks are from these peaks."""
