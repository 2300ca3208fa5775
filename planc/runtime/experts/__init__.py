"""How tokens reach the experts: one implementation a file, and the registry of their names."""
