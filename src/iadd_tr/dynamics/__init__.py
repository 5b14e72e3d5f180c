"""Learned dynamics: a member in two shapes (monolith, stages), the ensemble, its fit, the zero-action model."""
