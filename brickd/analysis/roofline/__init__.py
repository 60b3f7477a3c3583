"""How far bricks are from what a device can do, and how that is measured."""
