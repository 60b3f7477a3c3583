"""The demonstration: four real workers and what brickd sees of them."""
