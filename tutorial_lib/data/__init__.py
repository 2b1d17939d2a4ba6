"""From files to minibatches."""
