"""DFlash drafting and verification in plain torch and transformers: an engine-free second opinion.

It serves one sequence at a time and knows plain DFlash drafters only. ``graft-sglang doctor`` holds
a server's accept lengths against it, and the examples train drafters with it.
"""
