"""Programs for this repository: nothing here is part of what users install."""
