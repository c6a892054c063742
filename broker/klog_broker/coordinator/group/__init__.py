"""The group coordinator: groups of members, and their committed offsets.

May import: the modules directly in coordinator/, and everything that those may import. classic/ and
offsets.py are pure: no I/O, and the time is an argument. Start reading at classic/states.py, then
coordinator.py.
"""
