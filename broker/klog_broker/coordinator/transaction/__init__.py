"""The transaction coordinator: keeps the state of each transactional id, and ends transactions.

May import: the modules directly in coordinator/ and what those may import; never coordinator/group.
Pure modules (no I/O): states.py, transaction_metadata.py, decisions.py and end_decisions.py. Start
reading at states.py, then coordinator.py.
"""
