"""What looks on while a model is scored: gold pairs, a needle, alike heads, rollout, the probe."""
