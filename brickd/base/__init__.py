"""What every room uses: text, units, paths, locks, files. Knows no bricks or segments."""
