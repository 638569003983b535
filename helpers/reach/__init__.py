"""How commands get to the container. Knows nothing of runs, stages or verdicts."""
