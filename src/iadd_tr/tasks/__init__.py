"""Tasks: the paper's presets as data, termination functions, Gymnasium environments on the host, probes with known answers."""
