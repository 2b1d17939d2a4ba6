"""From numbers to pictures: plain arrays in, no torch."""
