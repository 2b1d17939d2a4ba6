"""From a gradient to an update."""
