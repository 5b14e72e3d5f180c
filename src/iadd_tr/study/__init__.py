"""Studies with a known truth: the synthetic one of Q3, and simulations of the theorems."""
