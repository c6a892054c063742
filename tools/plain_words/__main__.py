"""Checks the finished packages; with paths as arguments checks those instead."""

import sys

from tools.plain_words.check import check_plain_words
from tools.plain_words.finished import ALLOWED, FINISHED

if __name__ == "__main__":
    sys.exit(check_plain_words(sys.argv[1:], FINISHED, ALLOWED))
