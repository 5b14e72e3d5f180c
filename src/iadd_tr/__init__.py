"""IADD-TR: model-based reinforcement learning with intervention-aware dynamics and targeted critics."""
