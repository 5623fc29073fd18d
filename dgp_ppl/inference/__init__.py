"""Guides, objectives, samplers and the training loop."""
