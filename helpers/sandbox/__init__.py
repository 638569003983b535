"""Makes the embedded target: a real training environment, healthy first, then broken on purpose."""
