"""Between the notebook and its engines."""
