"""The kernels of a transformer layer as serving engines call them, behind one description of a batch."""
