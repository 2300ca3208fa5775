"""Bounds on what is read: far above any plan, and low enough that a hostile one costs next to nothing."""

# Of one file.
MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
# Keys and values together; ruamel.yaml takes about a second for so many.
MAX_NODES = 10_000
# Beyond that many findings the rest is not read: it is no plan, and each finding costs time.
MAX_FINDINGS = 200
# Plans that extend each other in a row.
MAX_EXTENDS = 16
# Of a number in a size, an argument or a requirement: fits 64 bits, and Python reads it at once.
MAX_DIGITS = 18
# Characters of a key; YAML itself takes 1,024 before the `:`.
MAX_KEY = 500
# Of a layer number in a key.
MAX_INDEX_DIGITS = 6
# Names that a key expands to.
MAX_ALTERNATIVES = 256
# Characters of a requirement: bounds the depth of its tree, and so every recursion over it.
MAX_REQUIREMENT = 500
