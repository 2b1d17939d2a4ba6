"""From the shell to all of it: the gan-tutorial command."""
