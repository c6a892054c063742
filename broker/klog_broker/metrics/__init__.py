"""Plain numbers that the rooms of the broker count, in objects that they are given.

Imports nothing of the broker; monitoring/ reads and renders what is counted here. Begin with
requests.py.
"""
