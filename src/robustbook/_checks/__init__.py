"""Checks of what a caller passes: numbers, logits, images, models."""
