"""The controller: it carries messages between notebooks and engines."""

c = get_config()

# An engine counts as registered after two heartbeats. At the stock period of 3 s every cluster
# takes more than 6 s to start; the number of misses is raised to match, so that an engine is
# given up after 30 s, as in stock.
c.HeartMonitor.period = 200  # ms
c.HeartMonitor.max_heartmonitor_misses = 150

# Nobody asks the controller for results of the past, and storing them costs time and memory.
c.IPController.db_class = "NoDB"

# The stock controller is nine processes; for the ranks of a tutorial one is enough, and starts
# sooner: the schedulers as threads, one of them for broadcasts.
c.IPController.use_threads = True
c.IPController.broadcast_scheduler_depth = 0

# All ranks of this profile run on this host, whose name need not resolve.
c.IPController.location = "127.0.0.1"
