"""Disk access: files (more may be in use than the process has file descriptors), memory mappings,
file locks and directories."""
