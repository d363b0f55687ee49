"""How the image is built: what `./dev image` and the Dockerfile use, none of it loaded in a sandbox."""
