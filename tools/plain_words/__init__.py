"""A check of the repository's sentences: ``python -m tools.plain_words`` runs it.

Start reading at rules.py.
"""
