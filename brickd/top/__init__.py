"""`brickd top`: the live screen. `draw` makes its lines; only `app` knows textual."""
