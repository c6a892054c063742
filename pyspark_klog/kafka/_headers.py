"""The type of a record's headers."""

Headers = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]
"""A record's headers: in a list a key can have several values, and the order is kept."""
