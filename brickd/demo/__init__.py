"""The demonstration: four real workers, and what brickd shows of them."""
