"""Algorithms: each file is the order of its stages and nothing else. Start with `mbpo`."""
