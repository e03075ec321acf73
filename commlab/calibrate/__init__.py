"""From measured times to α and β: read logs, fit, and say in words what is odd."""
