"""From the files of a partition's directory to a log that can be used."""
