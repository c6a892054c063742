"""The group coordinator: groups of members, by their protocol, and committed offsets.

May import: coordinator's runtime and what that may. Pure are classic/ and offsets. Start reading at
classic/states.py, then coordinator.py.
"""
