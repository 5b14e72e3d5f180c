"""The agent: a squashed Gaussian policy, twin critics, their targeted correction, and soft actor-critic's update."""
