"""Kernel sources: texts assembled from the pieces that workers send."""
