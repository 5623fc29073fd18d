"""The normalising-flow guide, and the bijection that it takes by default."""
