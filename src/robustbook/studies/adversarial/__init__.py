"""Part III: networks under attack, noise and edits of their text."""
