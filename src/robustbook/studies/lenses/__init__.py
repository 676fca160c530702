"""Part VI: all measures on the same networks and images."""
