"""Part V: distances to the boundary."""
