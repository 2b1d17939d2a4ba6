"""The engines: each is one MPI rank."""

c = get_config()

# The engine looks for the controller's heartbeat every 0.7 s (the period of 0.2 s and 0.5 s
# more), and ends when it has missed it for 35 s.
c.IPEngine.max_heartbeat_misses = 50

# On a busy host the controller may take longer than the stock 5 s to answer.
c.IPEngine.timeout = 30.0
