"""Figures and tables; they read run folders and nothing else."""
