"""Training and measuring DFlash drafters with plain torch and transformers.

Nothing here imports SGLang: a drafter is trained against cached or recomputed hidden states of its
target, saved in the public DFlash layout, and measured by a transformers-only decoding loop.
"""
