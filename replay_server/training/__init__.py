"""What the training programs share: run folders, options in files, signals, progress."""
