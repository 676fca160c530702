"""Part III: learners that are trained on two domains."""
