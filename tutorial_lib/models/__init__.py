"""From a minibatch to a loss."""
