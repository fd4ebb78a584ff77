"""What the deployed suite does, on a local AWS."""
