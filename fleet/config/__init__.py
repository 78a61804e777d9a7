"""The settings: their fields and defaults, what is checked, what the box and the docs are told of them."""
