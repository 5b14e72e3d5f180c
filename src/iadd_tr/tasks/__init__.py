"""Tasks: presets as data, termination functions, environments on the host, probes with known answers."""
