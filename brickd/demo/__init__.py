"""The demonstration: four real workers for brickd to show."""
