"""What CNTK did, in today's terms."""
