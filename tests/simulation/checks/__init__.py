"""The promises that hold for every seed, one family to a file."""
