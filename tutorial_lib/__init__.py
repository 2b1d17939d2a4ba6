"""The library behind the walkthrough: real MPI ranks train a GAN in front of you.

Importing this package is cheap: no torch, no MPI, no sockets until a room is asked for.
The rooms, in the order in which data passes through them, are ``data``, ``models``,
``display``, ``distributed``, ``learners``, ``training``, ``compat``, ``cluster``,
``exercises`` and ``launcher``; each imports only from those before it.
"""

__version__ = "0.1.0"
