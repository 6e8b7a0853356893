"""What the training programs share: options, nets, environments, run folders, signals, progress."""
