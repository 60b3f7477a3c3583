"""The texts that kernels are compiled from, put together from the pieces that workers send."""
