"""Two versions of the tree, operation by operation, and the figures of each version."""
