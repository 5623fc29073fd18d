"""Models and guides as programs: their sites, their data, their params."""
