"""The denoising-diffusion guide, its process, networks and objective."""
