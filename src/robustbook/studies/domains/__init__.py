"""Part IV: learners that are trained on two domains."""
