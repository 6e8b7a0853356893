"""What all of it stands on: options checked, command lines, one call at a time."""
