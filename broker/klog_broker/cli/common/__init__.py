"""Options, tables, progress and errors that the commands share."""
