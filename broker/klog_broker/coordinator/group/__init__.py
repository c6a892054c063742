"""The group coordinator: groups of members, and their committed offsets.

May import: the modules directly in coordinator/, and everything that those may import. classic/ and
offsets.py are pure. Start reading at classic/states.py, then coordinator.py.
"""
