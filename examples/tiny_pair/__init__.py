"""The tiny target and drafter that carry the tests: trained from permissive text on one core."""
