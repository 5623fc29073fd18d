"""The implicit guide, its networks and objective."""
