"""Part IV: predictions under random noise."""
