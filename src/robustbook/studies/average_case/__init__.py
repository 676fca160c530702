"""Part V: predictions under random noise."""
