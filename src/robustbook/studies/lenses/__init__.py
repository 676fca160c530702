"""Part VII: all measures on the same networks and images."""
