"""Files: opening, reading, writing and mapping, with fewer descriptors than open files."""
