"""Programs that execute, check and build the book; not part of the installed package."""
