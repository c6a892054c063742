"""The group coordinator: groups of members, and their committed offsets.

May import: the files of the folder above, and whatever those may import. classic/ and offsets.py
are pure. Start reading at classic/states.py, then coordinator.py.
"""
