"""Tests of one idea of one module each; the folders are named like the packages."""
