"""The engines: each is one MPI rank, on one of several hosts."""

c = get_config()

# The engine looks for the controller's heartbeat every 0.7 s (the period of 0.2 s and 0.5 s
# more), and ends when it has missed it for 15 s. (Ranks of gan-tutorial have a guard too.)
c.IPEngine.max_heartbeat_misses = 22

# Over a network, and on a busy host, the controller may take longer than the stock 5 s to answer.
c.IPEngine.timeout = 30.0
