"""The built-in policies about topics: each module registers its own."""
