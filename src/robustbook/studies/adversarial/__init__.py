"""Part II: networks under attack, noise and edits of their text."""
