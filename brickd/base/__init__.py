"""What every room uses: text, units, errors, paths, locks, files. Knows nothing of bricks or segments."""
