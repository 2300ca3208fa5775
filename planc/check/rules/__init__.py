"""One rule of the checker a file. A new file with a `Rule` in it is found by itself."""
