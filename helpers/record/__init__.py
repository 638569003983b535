"""What happened: run folder, journal, report. Knows nothing of how the container is reached."""
