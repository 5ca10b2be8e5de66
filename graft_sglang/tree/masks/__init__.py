"""Which nodes attend to what, in the layouts that attention backends read; one file a backend.

A node sees its request's whole prefix, its ancestors and itself. A padding node sees the prefix and
itself, so that its softmax is finite; no real node sees it.

- ``full_mask``: SGLang's FULL_MASK, for each request [w, prefix + w] bool, row-major, one after the
  other.
- ``query_only_mask``: SGLang's QLEN_ONLY, bool [bs, w, w].
- ``packed_mask``: FlashInfer's packed custom mask, FULL_MASK as bits, the lowest of a byte first;
  every request begins at a byte.

``numba_backend`` serves trees on the host, ``triton_backend`` trees on a device, ``numpy_backend``
is what both are compared with.
"""
