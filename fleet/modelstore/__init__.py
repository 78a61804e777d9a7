"""The model store: what may go in, the upload, and the release of what a box built."""
