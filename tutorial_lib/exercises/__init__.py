"""From a reader's answer to a verdict."""
