"""The demonstration: four real workers that brickd observes."""
