"""A whole broker, its clients, network, disk and time in one thread, all chosen by one seed.

Start reading at run.py (one seed from start to end), then world.py (time and order), machine.py
(starts and deaths of the broker), clients/ and checks/.
"""
