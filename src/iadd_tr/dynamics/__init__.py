"""Learned dynamics: one member in two shapes (monolith, stages), the ensemble over members, its fit, the zero-action model."""
