"""The transaction coordinator: what every transactional id has come to, and how it ends.

May import: coordinator's runtime and what that may; never coordinator/group. Pure are states.py,
metadata.py, decisions.py and ending.py. Start reading at states.py, then coordinator.py.
"""
