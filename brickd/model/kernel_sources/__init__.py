"""The texts that kernels are compiled from, assembled from the pieces that workers send."""
