"""Part VI: distances to the boundary."""
